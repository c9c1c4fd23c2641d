"""Which part of the past an update tells of, found from what ran."""

import numpy as np
import pytest

from perseus_ds.profiling.counter import CounterTrace, counter_trace
from perseus_ds.profiling.timeline import Timeline
from perseus_ds.profiling.window import FULL_PERIOD, SampledWindow, exposure, find_windows


def square_wave(half_s: float, low_w: float, high_w: float, until_s: float) -> Timeline:
    """A GPU that alternates between two powers, as a timeline with one column per power in watts."""
    edges = np.arange(0.0, until_s + half_s, half_s)
    high = np.arange(len(edges) - 1) % 2
    return Timeline(edges, np.column_stack([low_w * (1 - high), high_w * high]))


def test_an_exposure_is_what_the_window_saw_scaled_to_the_period() -> None:
    # 100 W for 2 s, then 50 W: in columns of their own.
    timeline = Timeline(np.array([0.0, 2.0, 9.0]), np.array([[100.0, 0.0], [0.0, 50.0]]))
    trace = CounterTrace(np.array([1.0, 2.0, 3.0, 4.0]), 1.0, np.array([0, 1]), np.array([1, 3]), np.ones(2))

    assert exposure(timeline, trace, FULL_PERIOD).tolist() == [[100.0, 0.0], [0.0, 100.0]]
    # The updates at 2, 3, 4 s show what was seen from 1.25 to 1.75 s, from 2.25 s and from 3.25 s on.
    assert exposure(timeline, trace, SampledWindow(0.25, 0.5)).tolist() == [[100.0, 0.0], [0.0, 100.0]]
    # A quarter of a period later: up to 2.25 s of the second increment's first update.
    half = exposure(timeline, trace, SampledWindow(0.75, 0.5))
    assert half == pytest.approx(np.array([[100.0, 0.0], [50.0, 75.0]]))


def test_fewer_increments_saw_what_they_saw_among_all() -> None:
    timeline = square_wave(0.033, 80.0, 400.0, 5.0)
    updates_s = np.arange(0.5, 4.6, 0.1)
    first = np.delete(np.arange(len(updates_s) - 1), [7, 8, 20])  # three updates were missed
    last = np.append(first[1:], len(updates_s) - 1)
    trace = CounterTrace(updates_s, 0.1, first, last, np.arange(1.0, len(first) + 1.0))
    few = trace.thinned(10)

    assert few.energy_j.tolist() == trace.energy_j[::3].tolist()
    window = SampledWindow(0.3, 0.25, 2.0)
    assert exposure(timeline, few, window) == pytest.approx(exposure(timeline, trace, window)[::3])
    assert trace.thinned(50).energy_j.tolist() == trace.energy_j.tolist()


def test_a_tenth_of_the_increments_may_be_wrong() -> None:
    timeline = square_wave(0.033, 80.0, 400.0, 40.0)
    rng = np.random.default_rng(1)
    updates_s = np.arange(0.5, 39.0, 0.1)
    seen_j = (timeline.integral(updates_s - 0.03) - timeline.integral(updates_s - 0.055)).sum(axis=1) / 0.25
    seen_j *= 1 + 0.01 * rng.normal(size=len(updates_s))
    seen_j[::12] *= 3.0

    trace = counter_trace(list(zip(updates_s, np.cumsum(seen_j), strict=True)), 0.0, 40.0)
    assert trace is not None
    window, *_ = find_windows(trace, timeline)

    assert (window.offset, window.width) == (pytest.approx(0.3, abs=0.02), pytest.approx(0.25, abs=0.02))


@pytest.mark.parametrize(("offset", "duty"), [(0.75, 0.25), (0.3, 0.25), (0.0, 0.5), (0.0, 1.0)])
def test_the_sampled_part_of_the_period_shows_in_the_increments(offset: float, duty: float) -> None:
    timeline = square_wave(0.033, 80.0, 400.0, 40.0)
    rng = np.random.default_rng(1)
    updates_s = np.arange(0.5, 39.0, 0.1)
    end_s = updates_s - offset * 0.1
    seen_j = (timeline.integral(end_s) - timeline.integral(end_s - duty * 0.1)).sum(axis=1) / duty
    counter = np.cumsum(seen_j * (1 + 0.03 * rng.normal(size=len(updates_s))))

    trace = counter_trace(list(zip(updates_s, counter, strict=True)), 0.0, 40.0)
    assert trace is not None
    window, *_ = find_windows(trace, timeline)

    assert window.offset == pytest.approx(offset, abs=0.03)
    assert window.width == pytest.approx(duty, abs=0.03)


@pytest.mark.parametrize("early", [0.2, 1.0, 3.0])
def test_no_window_lies_in_the_future(early: float) -> None:
    timeline = blocks(60.0)
    updates_s = np.arange(8.0, 50.0, 0.1)
    end_s = updates_s + early * 0.1
    seen_j = (timeline.integral(end_s) - timeline.integral(end_s - 0.025)).sum(axis=1) / 0.25

    trace = counter_trace(list(zip(updates_s, np.cumsum(seen_j), strict=True)), 0.0, 60.0)
    assert trace is not None

    assert all(one.is_over and one.reach > 0.0 for one in find_windows(trace, timeline, 30.0))


def test_without_evidence_the_whole_period_counts() -> None:
    constant = Timeline(np.array([0.0, 50.0]), np.array([[300.0]]))
    rng = np.random.default_rng(2)
    counter = np.cumsum(30.0 * (1 + 0.03 * rng.normal(size=300)))

    trace = counter_trace([(0.1 * i + 1, c) for i, c in enumerate(counter)], 0.0, 50.0)

    assert trace is not None
    assert find_windows(trace, constant) == [SampledWindow(0.0, 1.0)]


def blocks(until_s: float) -> Timeline:
    """A GPU that changes its power about every 0.3 s, as a timeline with one column per power in watts."""
    rng = np.random.default_rng(6)
    edges = np.concatenate([[0.0], np.cumsum(rng.uniform(0.1, 0.5, int(until_s / 0.2)))])
    levels_w = rng.choice([80.0, 250.0, 400.0], len(edges) - 1)
    return Timeline(edges, np.column_stack([np.where(levels_w == w, w, 0.0) for w in (80.0, 250.0, 400.0)]))


@pytest.mark.parametrize(
    "truth",
    [
        SampledWindow(2.3, 1.0),
        SampledWindow(0.0, 1.0, average=3.0),
        SampledWindow(0.0, 1.0, average=10.0),
        SampledWindow(0.75, 0.25, decay=3.0),
        SampledWindow(0.0, 1.0, decay=10.0),
    ],
    ids=str,
)
def test_lags_and_averages_are_found(truth: SampledWindow) -> None:
    timeline = blocks(60.0)
    rng = np.random.default_rng(1)
    updates_s = np.arange(1.0, 60.0, 0.1)
    every = CounterTrace(updates_s, 0.1, np.arange(len(updates_s) - 1), np.arange(1, len(updates_s)), updates_s[1:])
    seen_j = exposure(timeline, every, truth).sum(axis=1) * (1 + 0.01 * rng.normal(size=len(updates_s) - 1))
    samples = list(zip(updates_s, np.cumsum(np.append(0.0, seen_j)), strict=True))

    trace = counter_trace(samples, 0.0, 60.0, reach_s=6.0)
    assert trace is not None
    found, *_ = find_windows(trace, timeline, longest=60.0)

    middle = found.offset + found.width / 2 + found.average / 2 + found.decay
    assert middle == pytest.approx(truth.offset + truth.width / 2 + truth.average / 2 + truth.decay, abs=0.15)
    assert found.average == pytest.approx(truth.average, rel=0.1, abs=0.3)
    assert found.decay == pytest.approx(truth.decay, rel=0.1, abs=0.3)
    off = exposure(timeline, trace, found).sum(axis=1) / exposure(timeline, trace, truth).sum(axis=1) - 1.0
    assert np.sqrt(np.mean(off**2)) < 0.02


def test_the_search_ends_where_hardly_anything_ran_and_many_windows_fit_as_well() -> None:
    looks = []

    class Counting(Timeline):
        def averaged(self, until_s, over_s, decay_s):
            looks.append(over_s)
            return super().averaged(until_s, over_s, decay_s)

    edges_s = np.arange(0.0, 8.0, 0.07)
    busy = np.random.default_rng(21).integers(0, 2, len(edges_s) - 1)
    timeline = Counting(edges_s, np.column_stack([busy, 1 - busy]) * 200.0)
    energy_j = 20.0 * (1 + 0.2 * np.random.default_rng(1).normal(size=60))
    trace = CounterTrace(np.arange(81) * 0.1, 0.1, np.arange(20, 80), np.arange(21, 81), energy_j)

    find_windows(trace, timeline, longest=60.0)

    assert len(looks) < 3_000
