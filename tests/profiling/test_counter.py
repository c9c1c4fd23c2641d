"""What an energy counter's increments saw."""

import numpy as np
import pytest

from perseus_ds.profiling.counter import FULL_PERIOD, SampledWindow, Timeline, counter_trace, find_window


def square_wave(half_s: float, low_w: float, high_w: float, until_s: float) -> Timeline:
    """A GPU that alternates between two powers, as a timeline with one column per power in watts."""
    edges = np.arange(0.0, until_s + half_s, half_s)
    high = np.arange(len(edges) - 1) % 2
    return Timeline(edges, np.column_stack([low_w * (1 - high), high_w * high]))


def test_a_timeline_integrates_between_any_two_points() -> None:
    timeline = Timeline(np.array([0.0, 1.0, 3.0]), np.array([[100.0], [50.0]]))

    assert timeline.integral(np.array([0.0, 0.5, 1.0, 2.0, 3.0])).ravel().tolist() == [0, 50, 100, 150, 200]


def test_updates_are_told_apart_from_the_polls_that_see_them() -> None:
    rng = np.random.default_rng(0)
    updates_s = 100.0 + 0.1 * np.arange(200)
    seen = [(u + rng.uniform(0, 0.005), 30.0 * i) for i, u in enumerate(updates_s)]

    trace = counter_trace(seen, 100.0, 121.0)

    assert trace is not None
    assert trace.period_s == pytest.approx(0.1, rel=1e-3)
    late = trace.updates_s - updates_s
    assert np.ptp(late) < 0.001, "polling jitter is gone"
    assert np.all(trace.energy_j == 30.0)


def test_an_update_that_no_poll_saw_is_counted_with_the_next() -> None:
    seen = [(0.1 * i, 30.0 * i) for i in range(50) if i not in (20, 21)]

    trace = counter_trace(seen, 0.0, 5.0)

    assert trace is not None
    gap = int(np.argmax(trace.last - trace.first))
    assert trace.last[gap] - trace.first[gap] == 3
    assert trace.energy_j[gap] == pytest.approx(90.0)
    exposure = Timeline(np.array([-1.0, 6.0]), np.array([[1.0]])).exposure(trace, FULL_PERIOD)
    assert exposure[gap, 0] == pytest.approx(0.3)


def test_a_counter_that_stands_still_or_goes_back_tells_nothing() -> None:
    assert counter_trace([], 0.0, 10.0) is None
    assert counter_trace([(1.0, 5.0)], 0.0, 10.0) is None
    wrapped = [(0.1 * i, 30.0 * (i % 25)) for i in range(50)]
    trace = counter_trace(wrapped, 0.0, 5.0)
    assert trace is not None
    assert np.all(trace.energy_j > 0)


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
    window = find_window(trace, timeline)

    assert window.offset == pytest.approx(offset, abs=0.03)
    assert window.width == pytest.approx(duty, abs=0.03)


def test_without_evidence_the_whole_period_counts() -> None:
    constant = Timeline(np.array([0.0, 50.0]), np.array([[300.0]]))
    rng = np.random.default_rng(2)
    counter = np.cumsum(30.0 * (1 + 0.03 * rng.normal(size=300)))

    trace = counter_trace([(0.1 * i + 1, c) for i, c in enumerate(counter)], 0.0, 50.0)

    assert trace is not None
    assert find_window(trace, constant) == SampledWindow(0.0, 1.0)


def test_a_busy_host_polls_late_and_the_updates_are_still_where_they_are() -> None:
    rng = np.random.default_rng(3)
    timeline = square_wave(0.033, 80.0, 400.0, 85.0)
    updates_s = 1.0 + 0.05 * np.arange(1600)
    late_s = rng.uniform(0.0, 0.005, 1600) + np.where(rng.random(1600) < 0.05, rng.uniform(0.01, 0.15, 1600), 0.0)
    counter = timeline.integral(updates_s).sum(axis=1)
    polls_s = np.maximum.accumulate(updates_s + late_s)
    # Of the updates that one poll sees together only the last one shows.
    seen = [i for i in range(1599) if polls_s[i] < min(polls_s[i + 1], updates_s[i + 1])]
    samples = [(float(polls_s[i]), float(counter[i])) for i in seen]
    samples.insert(700, (samples[699][0] + 0.002, samples[699][1] + 1e-3))

    trace = counter_trace(samples, 0.0, 85.0)

    assert trace is not None
    assert trace.period_s == pytest.approx(0.05, rel=1e-5)
    expected = timeline.exposure(trace, SampledWindow(0.05, 1.0)).sum(axis=1)
    assert np.median(np.abs(trace.energy_j / expected - 1.0)) < 0.02
    assert np.mean(np.abs(trace.energy_j / expected - 1.0) < 0.1) > 0.95
