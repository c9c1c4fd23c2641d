"""What waiting draws."""

import pytest

from perseus_ds.silicon.waiting_power import judge, measure


@pytest.fixture(scope="module")
def rows(virtual_lab):
    return measure(virtual_lab)


def test_more_spinning_draws_more(rows):
    outcome = judge(rows)
    assert outcome.passed, outcome.why
    assert outcome.figures["32 multiprocessors_w"] == pytest.approx(148.4, rel=0.03)
    assert outcome.figures["idle_w"] == pytest.approx(126.0, rel=0.03)


def test_less_power_with_more_to_do_is_told(rows):
    assert "with less to do" in judge({**rows, 32: rows[0]}).why


def test_a_counter_and_a_power_that_contradict_each_other_are_told(rows):
    doubled = [(at_s, (2.0 * values[0], values[1])) for at_s, values in rows[0]]
    assert "idle: the counter tells" in judge({**rows, 0: doubled}).why
