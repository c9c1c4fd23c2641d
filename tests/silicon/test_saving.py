"""Refreshes of a baseline whose saving is known."""

import dataclasses

import pytest

from perseus_ds.silicon.saving import BASELINE, PLAN, judge, measure


@pytest.fixture(scope="module")
def ran(virtual_lab):
    return measure(virtual_lab)


def test_refreshes_tell_the_saving_of_long_blocks(ran):
    outcome = judge(ran)
    assert outcome.passed, outcome.why
    assert outcome.figures["claimed_percent"] == pytest.approx(19.5, abs=0.5)


def test_blocks_are_whole_iterations_of_equal_length(ran):
    assert [block.which for block in ran.before] == [block.which for block in ran.after] == [BASELINE, PLAN]
    assert [block.which for block in ran.refreshed] == [PLAN, *[BASELINE, PLAN] * 4]
    for block in (*ran.before, *ran.refreshed, *ran.after):
        lengths_s = [end_s - begin_s for begin_s, end_s in zip(block.borders_s, block.borders_s[1:], strict=False)]
        assert lengths_s == pytest.approx([0.78] * len(block.spans), abs=0.01)


def test_a_counter_that_averages_a_second_tells_it_too(make_lab):
    outcome = judge(measure(make_lab(counter_window_s=1.0, noise=0.005)))
    assert outcome.passed, outcome.why


def test_energy_that_no_refresh_draws_is_told(ran):
    (begin_s, end_s), more_w = (ran.refreshed[1].borders_s[0], ran.refreshed[1].until_s), 40.0
    rows = tuple((at_s, (j + more_w * (min(max(at_s, begin_s), end_s) - begin_s),)) for at_s, (j,) in ran.rows)
    why = judge(dataclasses.replace(ran, rows=rows)).why
    assert "claimed, 1" in why


def test_a_counter_that_stands_still_is_told(ran):
    still = tuple((at_s, (0.0,)) for at_s, _ in ran.rows)
    assert not judge(dataclasses.replace(ran, rows=still)).passed
