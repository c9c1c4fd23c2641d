"""Orders of the program or an operator to a running job, on any subject.

An order is three floats on the bus. A new kind of order is one more entry of ``ORDER_KINDS``. The rounds, the
decision core and the session carry it without knowing its meaning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import Protocol

from perseus_ds.coordination.requests import PlanRequest
from perseus_ds.frontier.objective_forms import OBJECTIVES, objective_from_json
from perseus_ds.frontier.objectives import Objective
from perseus_ds.objective_text import objective_values

__all__ = [
    "ORDER_KINDS",
    "Announcement",
    "NewObjective",
    "Order",
    "OrderBox",
    "OrderKind",
    "OrderSource",
    "objective_order",
    "order_of",
    "parse_order",
]

_MOST_SLOWDOWN = 10.0


@dataclass(frozen=True)
class Order:
    """One order.

    Attributes:
        kind: A name in ``ORDER_KINDS``.
        subject: Its subject, such as the number of a pipeline.
        value: The ordered value.
        by: Who has given it; only the rank that passes it on knows.
    """

    kind: str
    subject: int
    value: float
    by: str = field(default="the program", compare=False)

    @property
    def about(self) -> tuple[str, int]:
        """What it orders: of two orders about the same, the later holds."""
        return self.kind, self.subject if ORDER_KINDS[self.kind].by_subject else 0

    def to_floats(self) -> tuple[float, float, float]:
        """Return kind, subject and value in the bus's format."""
        return float(ORDER_KINDS[self.kind].code), float(self.subject), float(self.value)

    def taken_back(self) -> Order:
        """Return the order that ends this one."""
        return Order(*self.about, ORDER_KINDS[self.kind].neutral, self.by)


@dataclass(frozen=True)
class Announcement:
    """The effect of an order about a straggler.

    Attributes:
        pipeline: The slow pipeline.
        slowdown: Its iteration time as a multiple of the normal; 1.0 ends the announcement.
    """

    pipeline: int
    slowdown: float


@dataclass(frozen=True)
class NewObjective:
    """The effect of an order about the objective.

    Attributes:
        objective: The new objective; None: the configured one again.
    """

    objective: Objective | None


@dataclass(frozen=True)
class OrderKind:
    """One kind of order.

    Attributes:
        code: Its number on the bus, at least 1.
        neutral: The value that revokes an order.
        parse: Returns subject and value from the words of a control line after the first, and the number of
            pipelines; raises ValueError.
        effect: Returns the decision core's response: note a straggler, pursue an objective, or request plans.
        by_subject: Orders on different subjects hold side by side.
    """

    code: int
    neutral: float
    parse: Callable[[Sequence[str], int], tuple[int, float]]
    effect: Callable[[Order], Announcement | NewObjective | Callable[[int], PlanRequest]]
    by_subject: bool = True


def _parse_straggler(words: Sequence[str], pipelines: int) -> tuple[int, float]:
    pipeline, slowdown = int(words[0]), float(words[1])
    if len(words) != 2 or not 0 <= pipeline < pipelines or not 1.0 <= slowdown <= _MOST_SLOWDOWN:
        raise ValueError("straggler PIPELINE SLOWDOWN")
    return pipeline, slowdown


def objective_order(objective: Objective | None, by: str = "the program") -> Order:
    """Return the order to pursue an objective; None: the configured one again."""
    if objective is None:
        return Order("objective", 0, 0.0, by)
    value = next(iter(astuple(objective)), 0.0)
    return Order("objective", 1 + OBJECTIVES.index(type(objective)), float(value), by)


def _parse_objective(words: Sequence[str], pipelines: int) -> tuple[int, float]:
    order = objective_order(objective_from_json(objective_values("".join(words))))
    return order.subject, order.value


def _new_objective(order: Order) -> NewObjective:
    if not 1 <= order.subject <= len(OBJECTIVES):
        return NewObjective(None)
    kind = OBJECTIVES[order.subject - 1]
    return NewObjective(kind(*[order.value] * len(fields(kind))))


ORDER_KINDS: dict[str, OrderKind] = {
    "straggler": OrderKind(
        code=1, neutral=1.0, parse=_parse_straggler, effect=lambda order: Announcement(order.subject, order.value)
    ),
    "objective": OrderKind(code=2, neutral=0.0, parse=_parse_objective, effect=_new_objective, by_subject=False),
}
"""Every kind of order by the first word of its control line."""


def order_of(floats: Sequence[float]) -> Order | None:
    """Return the order encoded by ``Order.to_floats``; None for the NaNs of a rank without an order."""
    code, subject, value = floats
    for name, kind in ORDER_KINDS.items():
        if kind.code == code:
            return Order(name, int(subject), value)
    return None


def parse_order(line: str, pipelines: int) -> Order:
    """Return the order on a line of a control file.

    Args:
        line: The kind, and the words for its ``parse``.
        pipelines: Number of pipelines.

    Raises:
        ValueError: The line is no order.
    """
    kind, *words = line.split()
    if kind not in ORDER_KINDS:
        raise ValueError(f"no such order: {kind}")
    try:
        return Order(kind, *ORDER_KINDS[kind].parse(words, pipelines))
    except IndexError:
        raise ValueError("words are missing") from None


class OrderSource(Protocol):
    """A source of orders besides the program."""

    def next_order(self) -> Order | None:
        """Return the next new order."""
        ...

    def close(self) -> None:
        """Stop looking for orders."""
        ...


class OrderBox:
    """This rank's orders until all ranks have heard them.

    A pipeline passes on one order per round, so an order stays on top until a round contains it.

    Args:
        sources: Asked when the program has no order.
    """

    def __init__(self, *sources: OrderSource) -> None:
        self._sources = sources
        self._orders: deque[Order] = deque()

    def place(self, order: Order) -> None:
        """Take an order of the program."""
        self._orders.append(order)

    def top(self) -> Order | None:
        """Return the order to put on the bus."""
        if not self._orders:
            self._orders.extend(order for source in self._sources if (order := source.next_order()))
        return self._orders[0] if self._orders else None

    def heard(self, orders: Iterable[Order]) -> None:
        """Remove the orders that all ranks have heard."""
        if self._orders and self._orders[0] in orders:
            self._orders.popleft()

    def close(self) -> None:
        """Stop taking orders from the sources."""
        for source in self._sources:
            source.close()
