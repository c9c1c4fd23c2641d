"""What the counter tells of the past: found on the virtual one, and told where the two answers differ."""

import dataclasses

import pytest

from perseus_ds.silicon import counter as module
from perseus_ds.silicon.counter import judge, measure
from perseus_ds.silicon.powers import changed


@pytest.fixture(scope="module")
def steps(virtual_lab):
    return measure(virtual_lab)


def test_period_and_lag_are_those_of_the_virtual_counter(steps):
    outcome = judge(steps)
    assert outcome.passed, outcome.why
    assert outcome.figures["period_ms"] == pytest.approx(100.0, abs=1.0)
    assert outcome.figures["counter_step_lag_ms"] == pytest.approx(outcome.figures["lag_told_ms"], abs=20.0)
    assert outcome.figures["lag_told_ms"] == pytest.approx(12.0, abs=10.0)


def test_a_window_that_the_steps_contradict_is_told(steps, monkeypatch):
    found = module._attributed(steps, changed(steps.rows))
    wrong = dataclasses.replace(found, window=dataclasses.replace(found.window, offset=found.window.offset + 2.0))
    assert wrong.verdict.explained
    monkeypatch.setattr(module, "_attributed", lambda *_: wrong)
    assert "and believes it" in judge(steps).why


def test_a_counter_that_does_not_move_fails(steps):
    rows = tuple((at_s, (1.0, *values[1:])) for at_s, values in steps.rows)
    assert not judge(dataclasses.replace(steps, rows=rows)).passed
