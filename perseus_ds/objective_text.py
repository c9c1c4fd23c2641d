"""The written form of objectives: one grammar for the configuration, the command line, orders and the program.

``min_time``, ``min_energy``, ``slowdown=1.05``, ``deadline=2.5s``, ``power=12kW`` and ``power_cap=900W``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

__all__ = ["ALLOWED", "KEYS", "objective_values"]

ALLOWED = "min_time, min_energy, slowdown=FACTOR, deadline=SECONDS, power=WATTS, power_cap=WATTS"
"""All written forms, for messages."""

KEYS = {
    "min_time": "min_time",
    "min_energy": "min_energy",
    "slowdown": "slowdown",
    "deadline": "deadline_s",
    "power": "power_w",
    "power_cap": "power_cap_w",
}
"""The configuration's key by an objective's name."""

_WATTS: Mapping[str, float] = {"mw": 1e6, "kw": 1e3, "w": 1.0, "": 1.0}
_UNITS: Mapping[str, Mapping[str, float]] = {
    "slowdown": {"": 1.0},
    "deadline": {"ms": 1e-3, "s": 1.0, "": 1.0},
    "power": _WATTS,
    "power_cap": _WATTS,
}


def objective_values(text: str) -> dict[str, float | bool]:
    """Return the configuration's mapping for a written objective, such as ``{"power_w": 12000.0}``.

    Args:
        text: A name, or a name, ``=`` and a number above 0 with or without its unit.

    Raises:
        ValueError: The text is no objective.
    """
    name, separator, number = text.strip().partition("=")
    units = _UNITS.get(name)
    if name not in KEYS or bool(units) != bool(separator):
        raise ValueError(f"allowed: {ALLOWED}")
    return {KEYS[name]: True if units is None else _number(number.strip().lower(), units)}


def _number(text: str, units: Mapping[str, float]) -> float:
    unit = next(unit for unit in units if text.endswith(unit))
    value = float(text.removesuffix(unit)) * units[unit]
    if not 0 < value < math.inf:
        raise ValueError(f"{text} is not above 0")
    return value
