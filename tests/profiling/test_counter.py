"""What an energy counter's increments saw."""

import numpy as np
import pytest

from perseus_ds.profiling.counter import Doubt, TooLittleSeen, counter_reader, counter_trace
from perseus_ds.profiling.timeline import Timeline
from perseus_ds.profiling.window import FULL_PERIOD, SampledWindow, exposure


def square_wave(half_s: float, low_w: float, high_w: float, until_s: float) -> Timeline:
    """A GPU that alternates between two powers, as a timeline with one column per power in watts."""
    edges = np.arange(0.0, until_s + half_s, half_s)
    high = np.arange(len(edges) - 1) % 2
    return Timeline(edges, np.column_stack([low_w * (1 - high), high_w * high]))


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
    seen_s = exposure(Timeline(np.array([-1.0, 6.0]), np.array([[1.0]])), trace, FULL_PERIOD)
    assert seen_s[gap, 0] == pytest.approx(0.3)


def test_a_counter_that_stands_still_or_goes_back_tells_nothing() -> None:
    assert counter_trace([], 0.0, 10.0) is None
    assert counter_trace([(1.0, 5.0)], 0.0, 10.0) is None
    wrapped = [(0.1 * i, 30.0 * (i % 25)) for i in range(50)]
    trace = counter_trace(wrapped, 0.0, 5.0)
    assert trace is not None
    assert np.all(trace.energy_j > 0)


def irregular() -> np.ndarray:
    """Times of a counter that moves whenever it likes."""
    return np.array([0.0, 1.0, 1.7, 3.1, 3.4, 5.0, 5.3, 6.1, 7.9, 8.2, 9.5, 9.7, 11.0, 12.9, 13.1, 15.0])


def test_where_updates_are_not_regular_each_poll_s_time_counts() -> None:
    times = irregular()
    trace = counter_trace(list(zip(times, np.arange(16.0) ** 2, strict=True)), -10.0, 20.0)

    assert trace is not None
    assert trace.updates_s.tolist() == times.tolist()
    assert trace.period_s == pytest.approx(np.median(np.diff(times)))
    assert (trace.first.tolist(), trace.last.tolist()) == ([*range(15)], [*range(1, 16)])
    assert trace.energy_j.tolist() == [2.0 * i + 1 for i in range(15)]


def test_only_increments_that_saw_nothing_else_count() -> None:
    times = irregular()
    period_s = float(np.median(np.diff(times)))
    samples = list(zip(times, 30.0 * np.arange(16), strict=True))

    # A window lies up to a period before its update: the bounds are those of increments 2 and 12.
    trace = counter_trace(samples, times[2] - period_s, times[13], excluded=[(times[5], times[8] - period_s)])

    assert trace is not None
    assert trace.first.tolist() == [2, 3, 4, 8, 9, 10, 11, 12]
    just_less = counter_trace(samples, times[2] - period_s + 1e-6, times[13] - 1e-6)
    assert just_less is not None
    assert (just_less.first[0], just_less.last[-1]) == (3, 12)


def test_three_increments_tell_something_and_two_do_not() -> None:
    samples = [(0.1 * i, 30.0 * i) for i in range(4)]

    assert counter_trace(samples, -1.0, 1.0) is not None
    assert counter_trace(samples[:3], -1.0, 1.0) is None
    assert counter_trace(samples, -1.0, 0.25) is None


def test_a_poll_that_is_late_by_most_of_a_period_is_told_by_the_next() -> None:
    late_s = {7: 0.08, 8: 0.06, 20: 0.07, 33: 0.085}
    seen = [(0.1 * i + late_s.get(i, 0.0), 30.0 * i) for i in range(60)]

    trace = counter_trace(seen, -1.0, 6.0)

    assert trace is not None
    assert (trace.last - trace.first).tolist() == [1] * 59
    assert trace.period_s == pytest.approx(0.1, rel=1e-3)
    assert trace.updates_s == pytest.approx(0.1 * np.arange(60), abs=0.02)


def test_an_update_that_came_late_and_told_of_that_longer_time_is_counted_with_the_next() -> None:
    updates_s = 0.1 * np.arange(60.0)
    updates_s[20::10] += 0.01
    seen = [(at_s + 0.001, 100.0 * at_s) for at_s in updates_s]

    trace = counter_trace(seen, -1.0, 6.0)

    assert trace is not None
    took_s = trace.updates_s[trace.last] - trace.updates_s[trace.first]
    assert sorted(set((trace.last - trace.first).tolist())) == [1, 2]
    assert trace.energy_j == pytest.approx(100.0 * took_s, rel=1e-3), "100 W throughout"


def test_a_counter_that_moves_twice_in_a_period_has_one_update_there() -> None:
    seen = [(0.1 * i, 30.0 * i) for i in range(60)]
    seen.insert(21, (2.03, 605.0))

    trace = counter_trace(seen, -1.0, 6.0)

    assert trace is not None
    assert (trace.last - trace.first).tolist() == [1] * 59
    assert sorted(trace.energy_j.tolist()) == pytest.approx([25.0] + [30.0] * 58)


def test_polls_too_rare_to_tell_the_period_are_told_what_it_usually_is() -> None:
    """They see the counter at multiples of their own interval: as if it moved as often."""
    polls_s = np.arange(0.03, 40.0, 0.0613)
    moved = np.floor(polls_s / 0.1)
    seen = [(t, 5.0 * n) for t, n, before in zip(polls_s[1:], moved[1:], moved[:-1], strict=True) if n > before]

    alone, told = (counter_trace(seen, 0.0, 40.0, usual_period_s=usual_s) for usual_s in (0.0, 0.101))

    assert alone is not None
    assert abs(alone.period_s / 0.1 - 1.0) > 0.01
    assert told is not None
    assert abs(told.period_s / 0.1 - 1.0) < 1e-3
    assert np.allclose(told.energy_j, 5.0)


def test_the_period_of_a_long_training_is_known_to_a_millionth() -> None:
    rng = np.random.default_rng(4)
    period_s = 0.1003
    seen = [(50.0 + period_s * i + rng.uniform(0.0, 0.005), 30.0 * i) for i in range(20_000)]

    trace = counter_trace(seen, 0.0, 5000.0)

    assert trace is not None
    assert trace.period_s == pytest.approx(period_s, rel=1e-6)
    assert len(trace.energy_j) == 19_999
    assert trace.updates_s - (50.0025 + period_s * np.arange(20_000)) == pytest.approx(0.0, abs=0.001)


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
    expected = exposure(timeline, trace, SampledWindow(0.05, 1.0)).sum(axis=1)
    assert np.median(np.abs(trace.energy_j / expected - 1.0)) < 0.02
    assert np.mean(np.abs(trace.energy_j / expected - 1.0) < 0.1) > 0.95


def test_polls_of_which_few_look_regular_by_chance_do_not_decide_the_period() -> None:
    """The first 16 polls of a busy host fit another period better; all of them tell 20 ms."""
    chance = np.random.default_rng(14)
    times_s = np.sort(5.0 + 0.02 * np.arange(1500) + chance.normal(0.0, 0.0034, 1500))

    trace = counter_trace(list(zip(times_s.tolist(), np.arange(1500.0).tolist(), strict=True)), 0.0, 99.0)

    assert trace is not None
    assert trace.period_s == pytest.approx(0.02, rel=1e-4)
    assert np.diff(trace.updates_s) == pytest.approx(trace.period_s)


def test_doubtful_times_do_not_count_where_others_are_enough_and_where_they_show() -> None:
    samples = [(0.1 * n, 10.0 * n) for n in range(201)]
    everything = len(counter_reader(samples, 0.0, 20.0)(4.0).energy_j)

    def seen(reach_s: float, *doubts: Doubt) -> int:
        return len(counter_reader(samples, 0.0, 20.0, doubts=doubts)(reach_s).energy_j)

    assert seen(4.0, Doubt(10.0, 10.03, 0.008)) < everything
    assert seen(4.0, Doubt(10.0, 10.03, 0.002)) == everything, "2 ms of what is averaged over a second"
    assert seen(0.2, Doubt(10.0, 10.03, 0.002)) < len(counter_reader(samples, 0.0, 20.0)(0.2).energy_j)
    assert seen(4.0, Doubt(5.0, 15.0, 10.0)) == everything, "little else would be left"


def test_a_counter_that_stands_still_is_too_little() -> None:
    with pytest.raises(TooLittleSeen):
        counter_reader([(0.1 * n, 10.0) for n in range(50)], 0.0, 5.0)(None)
