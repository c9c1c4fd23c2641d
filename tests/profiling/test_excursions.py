"""Four iterations of a baseline among those of a plan: what they draw, whatever the counter's lag and the fit."""

import numpy as np
import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.excursions import Excursion, excursions, power_scales
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


@pytest.mark.parametrize("believed_lag_s", [0.7, 1.0, 1.3])
def test_powers_agree_with_the_counter_whatever_lag_is_believed(believed_lag_s) -> None:
    """The plan draws 240 W and the baseline 300; fitted were 250 and 330, and an average over another time."""
    apart = [Excursion(20.0, 28.0, 34.0)]
    edges_s, at_s = np.array([0.0, 20.0, 28.0, 60.0]), np.arange(0.0, 60.0, 0.1)
    true = Timeline(edges_s, np.array([[240.0], [300.0], [240.0]]))
    fitted = Timeline(edges_s, np.array([[250.0, 0.0], [0.0, 330.0], [250.0, 0.0]]))
    counter_j = true.averaged(at_s, 0.0, 1.0)[:, 0]
    shown_j = fitted.averaged(at_s, 0.0, believed_lag_s)

    scales = power_scales(apart, (0.0, 59.0), at_s, counter_j, shown_j)

    assert scales * [250.0, 330.0] == pytest.approx([240.0, 300.0], rel=0.003)


def test_without_excursions_powers_are_as_fitted() -> None:
    at_s = np.arange(0.0, 9.0)
    assert power_scales([], (0.0, 9.0), at_s, 2.0 * at_s, at_s[:, None]) == [1.0]
