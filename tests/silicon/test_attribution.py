"""Loads in a mix and alone."""

import dataclasses

import pytest

from perseus_ds.silicon.attribution import alone_w, judge, mix
from perseus_ds.silicon.lab import Load


@pytest.fixture(scope="module")
def measured(virtual_lab):
    before = alone_w(virtual_lab)
    mixed = mix(virtual_lab)
    return [before, alone_w(virtual_lab)], mixed


def test_the_mix_tells_what_each_load_draws_alone(measured):
    outcome = judge(*measured)
    assert outcome.passed, outcome.why
    assert outcome.figures["fp32 matrix work_in_mix_w"] == pytest.approx(455.0, rel=0.03)


def test_the_powers_that_the_driver_shows_tell_it_by_themselves(measured):
    figures = judge(*measured).figures
    assert figures["shown_believed"] == "yes"
    assert figures["shown_period_ms"] == pytest.approx(100.0, rel=0.01)
    assert figures["shown_window_ms"] == pytest.approx(25.0, abs=10.0)
    assert figures["fp32 matrix work_shown_w"] == pytest.approx(figures["fp32 matrix work_in_mix_w"], rel=0.03)


def test_a_load_that_draws_something_else_alone_is_told(measured):
    alone, mixed = measured
    wrong = [{**one, Load.MEMORY: one[Load.MEMORY] * 1.05} for one in alone]
    why = judge(wrong, mixed).why
    assert "memory work: -" in why
    assert "limit 2 %" in why
    assert "W alone" in why, "the interval does not cover it either"


def test_energies_that_belong_to_other_times_are_told(measured):
    alone, mixed = measured
    chance = iter(range(10**6))
    rows = tuple((at_s, (values[0] + 40.0 * (next(chance) % 7 > 3), values[1])) for at_s, values in mixed.rows)
    assert not judge(alone, dataclasses.replace(mixed, rows=rows)).passed
    assert not judge(alone, dataclasses.replace(mixed, rows=mixed.rows[:20])).passed
