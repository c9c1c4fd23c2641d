"""Integrals and averages of a piecewise constant power, against sums of small steps."""

import numpy as np
import pytest

from perseus_ds.profiling.timeline import Timeline


def test_a_timeline_integrates_between_any_two_points() -> None:
    timeline = Timeline(np.array([0.0, 1.0, 3.0]), np.array([[100.0], [50.0]]))

    assert timeline.integral(np.array([0.0, 0.5, 1.0, 2.0, 3.0])).ravel().tolist() == [0, 50, 100, 150, 200]


STEP_S = 1e-4
EDGES_S = np.array([0.0, 0.3, 0.35, 1.0, 1.2, 2.0])
LEVELS_W = np.array([100.0, 400.0, 80.0, 250.0, 300.0])


def stepped(over_s: float, decay_s: float) -> tuple[np.ndarray, np.ndarray]:
    """Return times, and the integral up to each of the average, in small steps."""
    begins_s = np.arange(-6.0, 2.0, STEP_S)
    power = LEVELS_W[np.clip(np.searchsorted(EDGES_S, begins_s + STEP_S / 2) - 1, 0, 4)]
    if decay_s:
        keep = np.exp(-STEP_S / decay_s)
        level = power[0]
        for at, now in enumerate(power):
            level = keep * level + (1 - keep) * now
            power[at] = level
    if over_s:
        window = round(over_s / STEP_S)
        power = np.convolve(np.concatenate([np.full(window - 1, power[0]), power]), np.ones(window) / window, "valid")
    return begins_s + STEP_S, np.cumsum(power) * STEP_S


@pytest.mark.parametrize(("over_s", "decay_s"), [(0.0, 0.0), (0.5, 0.0), (0.0, 0.2), (0.4, 0.3), (0.0, 0.001)])
def test_averages_are_those_of_small_steps(over_s: float, decay_s: float) -> None:
    timeline = Timeline(EDGES_S, LEVELS_W[:, None])
    times_s, energy_j = stepped(over_s, decay_s)
    at_s = np.array([0.1, 0.34, 0.9, 1.5, 2.0])

    expected_j = np.interp(at_s, times_s, energy_j)
    found_j = timeline.averaged(at_s, over_s, decay_s)[:, 0]

    assert np.diff(found_j) == pytest.approx(np.diff(expected_j), rel=1e-3)


def test_what_is_long_forgotten_does_not_overflow() -> None:
    edges_s = np.arange(0.0, 2000.0, 0.5)
    timeline = Timeline(edges_s, np.full((len(edges_s) - 1, 1), 7.0))

    assert np.diff(timeline.averaged(np.array([0.0, 1000.0, 1999.0]), 0.0, 0.01)[:, 0]) == pytest.approx([7e3, 6993.0])
