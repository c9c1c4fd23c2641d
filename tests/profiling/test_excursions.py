"""Four iterations of a baseline among those of a plan: what they draw, whatever the counter's lag and the fit."""

import numpy as np
import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.excursions import Excursion, excursions, told_apart
from perseus_ds.profiling.spans import Span
from perseus_ds.profiling.table import CurveKey
from perseus_ds.profiling.timeline import Timeline

ITERATION_S = 2.0
PLAN_MHZ, BASELINE_MHZ = 1200, 1410


def ran(*clocks_mhz: int) -> tuple[list[Span], list[tuple[float, float]]]:
    """Return an iteration of one instruction for each clock, and its bounds."""
    begins_s = np.arange(len(clocks_mhz)) * ITERATION_S
    key = CurveKey(0, Kind.FORWARD)
    spans = [Span(at_s + 0.1, at_s + 1.5, key, mhz) for at_s, mhz in zip(begins_s, clocks_mhz, strict=True)]
    return spans, [(at_s, at_s + ITERATION_S) for at_s in begins_s.tolist()]


def test_a_refreshed_baseline_is_an_excursion_until_the_counter_has_shown_it() -> None:
    work = ran(*[PLAN_MHZ] * 3, *[BASELINE_MHZ] * 2, *[PLAN_MHZ] * 3)
    assert excursions(*work, lag_s=3.5) == [Excursion(6.0, 10.0, 13.5)]
    assert excursions(*work, lag_s=6.1) == [], "the counter still shows it when the next one could begin"


@pytest.mark.parametrize(
    "clocks_mhz", [[PLAN_MHZ] * 5, [*[BASELINE_MHZ] * 2, *[PLAN_MHZ] * 3], [*[PLAN_MHZ] * 3, *[BASELINE_MHZ] * 2], []]
)
def test_without_usual_iterations_on_either_side_there_is_none(clocks_mhz) -> None:
    assert excursions(*ran(*clocks_mhz), lag_s=1.0) == []


def test_several_are_told_apart_if_each_is_shown_before_the_next() -> None:
    work = ran(*[PLAN_MHZ] * 2, BASELINE_MHZ, *[PLAN_MHZ] * 2, BASELINE_MHZ, *[PLAN_MHZ] * 2)
    assert [(one.begin_s, one.shown_s) for one in excursions(*work, lag_s=3.0)] == [(4.0, 9.0), (10.0, 15.0)]
    assert excursions(*work, lag_s=5.0) == [], "the second begins while the first is still shown"


APART = [Excursion(20.0, 28.0, 34.0)]
EDGES_S, READ_S = np.array([0.0, 20.0, 28.0, 60.0]), np.arange(0.0, 60.0, 0.1)


def powers_w(
    noise_j: float, believed_lag_s: float, fitted_w: tuple[float, float] = (330.0, 250.0)
) -> tuple[float, float]:
    """Return the power of the excursion, and of the usual iterations just after it; see ``told_w``."""
    return told_w(np.random.default_rng(1).normal(0.0, noise_j, len(READ_S)), believed_lag_s, fitted_w)[:2]


def told_w(
    more_j: np.ndarray, believed_lag_s: float, fitted_w: tuple[float, float], until_s: float = 59.0
) -> tuple[float, float, float]:
    """Return the power of the excursion, of the usual iterations just after it, and the first one's doubt.

    They draw 300 and 240 W, and the counter shows an average of a second, and ``more_j``. Fitted were other powers, and
    another time. The last usual iteration ends at ``until_s``.
    """
    powers_w = (300.0, 240.0), fitted_w
    true, fitted = (Timeline(EDGES_S, np.array([[usual], [more], [usual]])) for more, usual in powers_w)
    counter_j = true.averaged(READ_S, 0.0, 1.0)[:, 0] + more_j
    drawn_j, shown_j = fitted.integral(READ_S)[:, 0], fitted.averaged(READ_S, 0.0, believed_lag_s)[:, 0]
    hidden = believed_lag_s / 8.0 * (1.0 - np.exp(-8.0 / believed_lag_s))
    at_s, missed_j, sd_j = told_apart(APART, [hidden], (0.0, until_s), READ_S, counter_j - shown_j, drawn_j - shown_j)
    borders_s = [20.0, 28.0, 34.0]
    both = np.diff(np.interp(borders_s, READ_S, drawn_j) + np.interp(borders_s, at_s, missed_j)) / [8.0, 6.0]
    return float(both[0]), float(both[1]), sd_j / 8.0


@pytest.mark.parametrize("believed_lag_s", [0.7, 1.0, 1.4])
def test_an_excursion_tells_what_it_draws_whatever_lag_is_believed(believed_lag_s) -> None:
    assert powers_w(0.05, believed_lag_s) == pytest.approx([300.0, 240.0], rel=0.003)


def test_a_gpu_that_gets_warmer_draws_more_after_an_excursion_than_before() -> None:
    """Fewer usual iterations follow than precede: their mean is too cold for the time in which the counter shows it."""
    warmer_j = 0.2 / 2.0 * READ_S**2  # 0.2 W/s
    power_w, after_w, _ = told_w(warmer_j, 1.0, (330.0, 250.0), until_s=45.0)
    assert power_w == pytest.approx(300.0 + 0.2 * 24.0, abs=0.2)
    assert after_w == pytest.approx(240.0 + 0.2 * 31.0, abs=0.2)


def test_a_short_time_after_an_excursion_does_not_tell_how_fast_a_gpu_gets_warmer() -> None:
    just_after_j = np.interp(READ_S, [34.0, 35.0], [0.0, 5.0])
    assert told_w(just_after_j, 1.0, (330.0, 250.0), until_s=35.0)[0] == pytest.approx(300.0, abs=0.5)


def test_what_the_fitted_powers_miss_is_shown_late_too() -> None:
    """Usual iterations were fitted 20 W too high, the excursion 30 W too low: no lag to see in what was fitted."""
    assert powers_w(30.0, 1.0, (270.0, 260.0))[0] == pytest.approx(powers_w(30.0, 1.0)[0], abs=0.5)
    assert powers_w(0.05, 0.9, (270.0, 260.0)) == pytest.approx([300.0, 240.0], rel=0.003)


def test_a_prompt_counter_shows_what_the_first_iterations_draw_more() -> None:
    """A GPU that comes from lower clocks holds the highest for a while, until its power limit notices."""
    edges_s = np.array([0.0, 20.0, 22.0, 28.0, 60.0])
    true, fitted = (
        Timeline(edges_s, np.array(powers)[:, None]) for powers in ([240, 400, 300, 240], [250, 330, 330, 250])
    )
    counter_j, shown_j = (one.averaged(READ_S, 0.0, 0.01)[:, 0] for one in (true, fitted))
    late_j = fitted.integral(READ_S)[:, 0] - shown_j
    at_s, missed_j, _ = told_apart(APART, [0.001], (0.0, 59.0), READ_S, counter_j - shown_j, late_j)
    power = fitted.integral(np.array([20.0, 22.0, 28.0]))[:, 0] + np.interp([20.0, 22.0, 28.0], at_s, missed_j)
    assert np.diff(power) / [2.0, 6.0] == pytest.approx([400.0, 300.0], rel=0.01)


def test_where_the_counter_is_noisy_the_fit_counts_more() -> None:
    by_fit_w = powers_w(30.0, 1.4)[0] - powers_w(30.0, 1.0)[0]
    by_itself_w = powers_w(0.05, 1.4)[0] - powers_w(0.05, 1.0)[0]
    assert by_fit_w > 3.0, "0.4 s more of the lag, times the difference of the powers"
    assert abs(by_itself_w) < 0.5


@pytest.mark.parametrize("noise_j", [0.1, 0.5])
def test_its_doubt_is_as_large_as_its_error(noise_j) -> None:
    """Each step of the counter has a noise of its own, and the time believed is off by up to a quarter."""
    random = np.random.default_rng(3)
    errors_w, doubts_w = [], []
    for _ in range(200):
        noise = random.normal(0.0, noise_j, len(READ_S)).cumsum()
        power_w, _, doubt_w = told_w(noise, random.uniform(0.85, 1.25), (330.0, 250.0))
        errors_w.append(power_w - 300.0)
        doubts_w.append(doubt_w)
    assert 0.8 < np.std(np.array(errors_w) / doubts_w) < 1.2


def test_where_the_counter_was_not_read_until_it_had_shown_the_excursion_the_curve_stays_as_it_is() -> None:
    for read in (READ_S < 33.0, READ_S > 1.0):
        _, missed_j, sd_j = told_apart(APART, [0.1], (0.0, 59.0), READ_S[read], READ_S[read], READ_S[read])
        assert missed_j.tolist() == READ_S[read].tolist()
        assert sd_j == 0.0


def test_where_too_few_readings_tell_the_noise_the_fit_counts_alone() -> None:
    at_s = np.array([0.0, 20.0, 24.0, 28.0, 34.0, 60.0])
    missed_j = np.array([0.0, 0.0, 5.0, 10.0, 20.0, 20.0])
    curve_s, curve_j, sd_j = told_apart(APART, [0.0], (0.0, 19.0), at_s, missed_j, missed_j)
    assert np.interp(28.0, curve_s, curve_j) == 10.0
    assert sd_j == pytest.approx(0.2 * 10.0), "a fifth of what comes late"


def test_rare_readings_that_miss_all_of_an_excursions_fading_leave_it_to_the_fit() -> None:
    at_s, missed_j = np.array([0.0, 20.0, 24.0, 36.0, 60.0]), np.array([0.0, 0.0, 5.0, 20.0, 20.0])
    curve_s, curve_j, sd_j = told_apart(APART, [0.0], (0.0, 59.0), at_s, missed_j, missed_j)
    assert np.interp(28.0, curve_s, curve_j) == 10.0
    assert sd_j == pytest.approx(0.2 * 10.0)


def test_without_excursions_the_curve_stays_as_it_is() -> None:
    at_s, missed_j, _ = told_apart([], [], (0.0, 59.0), READ_S, READ_S, READ_S)
    assert at_s is READ_S
    assert missed_j is READ_S
