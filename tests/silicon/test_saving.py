"""Refreshes of a baseline whose saving is known."""

import dataclasses
import itertools

import numpy as np
import pytest

from perseus_ds.silicon import saving as module
from perseus_ds.silicon.saving import BASELINE, PLAN, judge, measure


@pytest.fixture(scope="module")
def ran(virtual_lab):
    return measure(virtual_lab)


def test_refreshes_tell_the_saving_that_all_readings_tell(ran):
    outcome = judge(ran)
    assert outcome.passed, outcome.why
    assert outcome.figures["true_percent"] == pytest.approx(19.8, abs=0.5)


def test_blocks_are_whole_iterations_of_equal_length(ran):
    assert [block.which for block in ran.blocks] == [PLAN, *[BASELINE, PLAN] * 4]
    for block in (ran.sweep, *ran.blocks):
        lengths_s = [end_s - begin_s for begin_s, end_s in itertools.pairwise(block.borders_s)]
        assert lengths_s == pytest.approx([0.78] * len(block.spans), abs=0.01)


def test_a_counter_that_averages_a_second_tells_it_too(make_lab):
    outcome = judge(measure(make_lab(counter_window_s=1.0, noise=0.005)))
    assert outcome.passed, outcome.why
    assert outcome.figures["true_percent"] == pytest.approx(19.8, abs=0.5)


def test_a_claim_that_takes_what_the_counter_shows_for_what_was_drawn_is_told(make_lab, monkeypatch):
    def shown_j(found, spans, samples, bounds_s, **_):
        return [float(np.diff(np.interp(one, *np.transpose(samples)))[0]) for one in bounds_s], 0.0

    monkeypatch.setattr(module, "whole_energies", shown_j)
    why = judge(measure(make_lab(counter_window_s=1.0, noise=0.005))).why
    assert "13.2% claimed, 20.0% true" in why


def test_a_counter_that_stands_still_is_told(ran):
    still = tuple((at_s, (0.0,)) for at_s, _ in ran.rows)
    assert not judge(dataclasses.replace(ran, rows=still)).passed
