"""Orders: from words to floats and back, and kept until all ranks have heard them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.coordination.orders import (
    ORDER_KINDS,
    Announcement,
    NewObjective,
    Order,
    OrderBox,
    objective_order,
    order_of,
    parse_order,
)

SLOW, SLOWER = Order("straggler", 0, 1.2), Order("straggler", 1, 1.5)


class Source:
    """A source of given orders."""

    def __init__(self, *orders: Order) -> None:
        self.orders, self.closed = list(orders), False

    def next_order(self) -> Order | None:
        return self.orders.pop(0) if self.orders else None

    def close(self) -> None:
        self.closed = True


@given(st.builds(Order, st.sampled_from(sorted(ORDER_KINDS)), st.integers(0, 10_000), st.floats(1.0, 10.0)))
def test_an_order_survives_the_bus(order):
    assert order_of(order.to_floats()) == order


def test_floats_without_an_order_are_none():
    nan = float("nan")
    assert order_of((nan, nan, nan)) is None
    assert order_of((99.0, 1.0, 1.0)) is None


def test_every_kind_has_a_number_of_its_own_that_no_silence_has():
    codes = [kind.code for kind in ORDER_KINDS.values()]
    assert len(set(codes)) == len(codes)
    assert min(codes) >= 1


@pytest.mark.parametrize(
    "text", ["min_time", "min_energy", "slowdown=1.05", "deadline=2.5", "power=12000", "power_cap=9"]
)
def test_every_objective_comes_through_the_bus(text):
    order = parse_order(f"objective {text}", pipelines=1)
    heard = order_of(order.to_floats())
    effect = ORDER_KINDS["objective"].effect(heard)
    assert isinstance(effect, NewObjective)
    assert str(effect.objective) == text
    assert objective_order(effect.objective) == order
    assert order.taken_back() == objective_order(None)
    assert ORDER_KINDS["objective"].effect(order_of(objective_order(None).to_floats())) == NewObjective(None)


def test_two_objectives_are_about_the_same_and_two_stragglers_are_not():
    first, second = (parse_order(f"objective {text}", 1) for text in ("min_time", "power=9kW"))
    assert first.about == second.about != SLOW.about != SLOWER.about


def test_a_straggler_is_announced_and_taken_back():
    kind = ORDER_KINDS["straggler"]
    assert kind.effect(SLOWER) == Announcement(1, 1.5)
    assert SLOWER.taken_back() == Order("straggler", 1, 1.0)


@pytest.mark.parametrize("line", ["straggler 1 1.0", "straggler 1 10", "  straggler   1 2.5 "])
def test_a_line_that_is_an_order(line):
    assert parse_order(line, pipelines=2) == Order("straggler", 1, float(line.split()[2]))


@pytest.mark.parametrize(
    "line",
    [
        "straggler",
        "straggler 1",
        "straggler 1 1.2 3",
        "straggler 2 1.2",
        "straggler -1 1.2",
        "straggler 1 0.99",
        "straggler 1 10.1",
        "straggler 1 nan",
        "straggler one 1.2",
        "faster 1 1.2",
        "objective",
        "objective fast",
        "objective power=-1",
    ],
)
def test_a_line_that_is_none(line):
    with pytest.raises(ValueError, match=r"."):
        parse_order(line, pipelines=2)


def test_an_order_stays_on_top_until_it_is_heard():
    box = OrderBox()
    assert box.top() is None
    box.place(SLOW)
    box.place(SLOWER)
    assert box.top() == box.top() == SLOW
    box.heard([SLOWER])  # another rank's
    assert box.top() == SLOW
    box.heard([SLOW, SLOWER])
    assert box.top() == SLOWER
    box.heard([SLOWER])
    assert box.top() is None
    box.heard([SLOW])


def test_the_program_s_orders_come_before_those_of_other_sources():
    source, empty = Source(SLOWER), Source()
    box = OrderBox(empty, source)
    box.place(SLOW)
    assert box.top() == SLOW
    box.heard([SLOW])
    assert box.top() == SLOWER
    assert source.orders == []
    box.close()
    assert source.closed
    assert empty.closed
