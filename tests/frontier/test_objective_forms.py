"""The written forms of objectives: text with units, JSON and the configuration."""

from __future__ import annotations

import json

import pytest

from perseus_ds.config import ObjectiveConfig
from perseus_ds.frontier.objective_forms import OBJECTIVES, objective_from_json, parse_objective
from perseus_ds.frontier.objectives import Deadline, MinEnergy, MinTime, Objective, Slowdown
from perseus_ds.frontier.power_objectives import JobPower, PowerCap
from perseus_ds.messages import PerseusError

EVERY = (MinTime(), MinEnergy(), Slowdown(1.05), Deadline(3.0), PowerCap(1600.0), JobPower(1600.0))


def test_every_objective_survives_text_json_and_configuration() -> None:
    assert [type(one) for one in EVERY] == list(OBJECTIVES)
    for objective in EVERY:
        assert parse_objective(str(objective)) == objective
        assert objective_from_json(json.loads(json.dumps(objective.to_json()))) == objective
    for objective in EVERY:
        assert objective_from_json(ObjectiveConfig.model_validate(objective.to_json()).model_dump()) == objective
        assert objective_from_json(ObjectiveConfig.model_validate(str(objective)).model_dump()) == objective


@pytest.mark.parametrize(
    ("text", "objective"),
    [
        ("power=12kW", JobPower(12e3)),
        ("power=1.5MW", JobPower(1.5e6)),
        ("power_cap=900 w", PowerCap(900.0)),
        ("deadline=2.5s", Deadline(2.5)),
        (" deadline=800ms ", Deadline(0.8)),
    ],
)
def test_units_are_understood(text: str, objective: Objective) -> None:
    assert parse_objective(text) == objective


@pytest.mark.parametrize(
    "text",
    ["", "fast", "slowdown", "slowdown=x", "slowdown=1=2", "deadline=-1", "power_cap=nan", "min_time=3", "power=3kJ"],
)
def test_unknown_objectives_list_what_is_allowed(text: str) -> None:
    with pytest.raises(PerseusError, match="allowed: min_time, min_energy, slowdown=FACTOR"):
        parse_objective(text)
