"""The written forms of objectives: text, and a mapping, which is also JSON.

``slowdown=1.03`` is ``{"slowdown": 1.03}``; ``perseus_ds.objective_text`` has the grammar.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from perseus_ds.frontier.objectives import Deadline, MinEnergy, MinTime, Objective, Slowdown
from perseus_ds.frontier.power_objectives import JobPower, PowerCap
from perseus_ds.messages import PerseusError
from perseus_ds.objective_text import ALLOWED, objective_values

__all__ = ["OBJECTIVES", "objective_from_json", "parse_objective"]

OBJECTIVES: tuple[type[Objective], ...] = (MinTime, MinEnergy, Slowdown, Deadline, PowerCap, JobPower)


def parse_objective(text: str) -> Objective:
    """Parse a written objective; ``perseus_ds.objective_text`` has the grammar.

    Raises:
        PerseusError: It is none.
    """
    try:
        return objective_from_json(objective_values(text))
    except ValueError:
        raise PerseusError("plan-bad-value", name="objective", value=repr(text), allowed=ALLOWED) from None


def objective_from_json(data: Mapping[str, Any]) -> Objective:
    """Return the objective of a mapping from ``to_json`` or from the configuration's section.

    Keys without a value are ignored; without any the objective is ``MinTime``.
    """
    for kind in OBJECTIVES:
        if data.get(kind.key):
            return kind(*(data[kind.key] for _ in fields(kind)))
    return MinTime()
