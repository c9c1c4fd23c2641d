"""Energy attributed to instructions and waiting, in cases small enough to see through."""

from dataclasses import replace

import numpy as np
import pytest

from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.trace import TimedOperation
from perseus_ds.profiling.achieved import Reading
from perseus_ds.profiling.energy import attribute
from perseus_ds.profiling.recorder import RecordedIteration
from perseus_ds.profiling.spans import Between, Segment, Span, spans_of
from perseus_ds.profiling.table import CurveKey
from perseus_ds.profiling.window import FULL_PERIOD

FORWARD, BACKWARD = CurveKey(1, Kind.FORWARD), CurveKey(1, Kind.BACKWARD)
POWER_W = {(FORWARD, 1410): 400.0, (BACKWARD, 1410): 440.0, (FORWARD, 1200): 280.0, (BACKWARD, 1200): 300.0}
WAITING_W, OPTIMIZER_W = 80.0, 200.0


def training(
    latency_s: float = 0.0, iterations: int = 120, optimizer_s: float = 0.02
) -> tuple[list[Span], list[tuple[float, float]]]:
    """Two clocks in turn, waits and an optimizer step; a noiseless counter of 20 ms."""
    spans: list[Span] = []
    draws: list[tuple[float, float]] = []  # seconds, watts
    now, clock = 50.0, 1410
    rng = np.random.default_rng(0)
    for iteration in range(iterations):
        asked = 1410 if iteration % 4 < 2 else 1200
        begin_s = now
        settled_s = now + latency_s if asked != clock else now
        asked_s = begin_s if asked != clock else -np.inf
        for key, work_s in ((FORWARD, 0.03), (BACKWARD, 0.055), (FORWARD, 0.03), (BACKWARD, 0.055)):
            begin, left = now, work_s
            if now < settled_s:
                part = min(settled_s - now, left)
                draws.append((part, POWER_W[key, clock]))
                now, left = now + part, left - part
            if left > 0:
                clock = asked
                draws.append((left, POWER_W[key, clock]))
                now += left
            spans.append(Span(begin, now, key, asked, asked_s))
            asked_s = -np.inf
        if optimizer_s:
            draws.append((optimizer_s, OPTIMIZER_W))
            spans.append(Span(now, now + optimizer_s, None))
        wait_s = float(rng.uniform(0.02, 0.06))
        draws.append((wait_s, WAITING_W))
        now += optimizer_s + wait_s
    times = 50.0 + np.cumsum([0.0] + [seconds for seconds, _ in draws])
    energy = np.cumsum([0.0] + [seconds * watts for seconds, watts in draws])
    polls = np.arange(50.0, now, 0.02)
    return spans, list(zip(polls.tolist(), np.interp(polls, times, energy).tolist(), strict=True))


@pytest.mark.parametrize("latency_s", [0.0, 0.012, 0.045])
def test_energies_waiting_and_other_work_are_told_apart(latency_s: float) -> None:
    found = attribute(*training(latency_s), switch_latency_s=latency_s)

    for (key, mhz), watts in POWER_W.items():
        point = next(point for point in found.curves[key] if point.frequency_mhz == mhz)
        assert point.energy_j == pytest.approx(watts * point.time_s, rel=0.01)
        assert point.time_s == pytest.approx(0.03 if key == FORWARD else 0.055, rel=0.005)
    assert found.blocking_power_w == pytest.approx(WAITING_W, rel=0.02)
    assert found.other_power_w[0] == pytest.approx(OPTIMIZER_W, rel=0.02)
    assert found.period_s == pytest.approx(0.02, rel=1e-6)


def test_other_work_that_the_counter_never_saw_is_expected_to_draw_more_than_waiting() -> None:
    found = attribute(*training(optimizer_s=0.0))

    power_w, sd_w = found.other_power_w
    assert found.blocking_power_w < power_w < min(POWER_W.values())
    assert sd_w > 0.15 * max(POWER_W.values())


def test_an_instruction_that_something_beside_it_slows_down_draws_less_power() -> None:
    found = attribute(*training())
    usual, slowed, waits = (
        found.power_w(Segment(0.0, 1.0, what, 1410, slowed=times))
        for what, times in ((BACKWARD, 1.0), (BACKWARD, 1.25), (Between.WAITING, 1.0))
    )

    assert slowed == pytest.approx(usual / 1.25 + waits * 0.2)


def test_an_energy_s_interval_is_that_of_power_and_time_together() -> None:
    found = attribute(*training())
    sd = np.array([2.0, 3.0, 4.0, 5.0, 0.5, 1.0])
    curves = {key: tuple(p._replace(time_ci_s=0.001) for p in points) for key, points in found.curves.items()}

    known = replace(found, curves=curves).with_power(replace(found.power, sd=sd))

    for (key, mhz), power_sd_w in zip(known.states, sd, strict=False):
        point = next(point for point in known.curves[key] if point.frequency_mhz == mhz)
        power_w = point.energy_j / point.time_s
        expected_j = np.hypot(1.96 * power_sd_w * point.time_s, power_w * 0.001)
        assert point.energy_ci_j == pytest.approx(expected_j)
    assert known.blocking_power_ci_w == pytest.approx(1.96 * 0.5)


def test_what_ran_before_the_first_instruction_and_after_the_last_does_not_count() -> None:
    spans, samples = training(iterations=60)
    begin_s, end_s = samples[0][0], samples[-1][0]
    before = [(begin_s - 1.0 + 0.02 * i, samples[0][1] - 1000.0 * (1.0 - 0.02 * i)) for i in range(50)]
    after = [(end_s + 0.02 * i, samples[-1][1] + 1000.0 * 0.02 * i) for i in range(1, 50)]

    alone, among_others = attribute(spans, samples), attribute(spans, [*before, *samples, *after])

    assert among_others.evidence.count == pytest.approx(alone.evidence.count, abs=2)
    assert among_others.power.values == pytest.approx(alone.power.values, rel=1e-3, abs=1e-6)


def test_the_increments_of_two_iterations_are_enough_when_nothing_is_noisy() -> None:
    spans, samples = training(iterations=4)

    found = attribute(spans[:10], samples, window=FULL_PERIOD)

    assert found.period_s == pytest.approx(0.02)
    assert found.curves[FORWARD][0].energy_j == pytest.approx(400.0 * 0.03, rel=0.02)
    assert found.curves[BACKWARD][0].energy_j == pytest.approx(440.0 * 0.055, rel=0.02)


def test_every_instruction_counts_when_clocks_change_at_once_the_first_ones_too() -> None:
    found = attribute(*training(iterations=8))

    assert dict(found.instances) == {(key, mhz): 8 for key in (FORWARD, BACKWARD) for mhz in (1410, 1200)}


def test_an_instruction_under_which_the_clock_changed_tells_no_time() -> None:
    everything = attribute(*training())
    settling = attribute(*training(0.045), switch_latency_s=0.045)

    # 0.045 s reach into the backward after the forward, once in two iterations.
    assert settling.instances[FORWARD, 1200] < everything.instances[FORWARD, 1200]
    assert settling.instances[BACKWARD, 1200] < everything.instances[BACKWARD, 1200]


def test_a_counter_that_stands_still_is_an_error_that_says_so() -> None:
    spans, samples = training()

    with pytest.raises(PerseusError, match="too few readings of the energy counter: 1 updates"):
        attribute(spans, samples[:1])
    with pytest.raises(PerseusError, match=r"0 instructions.*\[profiling-no-energy\]"):
        attribute([], samples)


def test_what_is_not_an_instruction_nor_waiting_is_other_work() -> None:
    operations = (
        TimedOperation(Operation(Kind.LOAD), 0.0, 0.1),
        TimedOperation(Operation(Kind.FORWARD, 0, chunk=2), 0.1, 0.2, 1410),
        TimedOperation(Operation(Kind.EXCHANGE), 0.2, 0.3),
        TimedOperation(Operation(Kind.OPTIMIZER), 0.3, 0.4),
        TimedOperation(Operation(Kind.BACKWARD, 0), 0.4, 0.5),  # without a clock of ours
    )

    spans = spans_of(RecordedIteration(7.0, 7.5, operations, requested_s={0: 7.05}), stage=3)

    assert spans == [
        Span(7.0, 7.1, None),
        Span(7.1, 7.2, CurveKey(3, Kind.FORWARD, 2), 1410, asked_s=7.05, batch=(0, 0)),
        Span(7.3, 7.4, None),
        Span(7.4, 7.5, None),
    ]


def test_an_evaluation_is_neither_work_nor_waiting() -> None:
    spans, samples = training()
    evaluation = RecordedIteration(spans[99].end_s, spans[99].end_s + 5.0, (), training=False)
    # The GPU draws 500 W for 5 s between two iterations.
    later_spans = [replace(s, begin_s=s.begin_s + 5, end_s=s.end_s + 5, asked_s=s.asked_s + 5) for s in spans[100:]]
    moved = [(t, j) if t <= evaluation.begin_s else (t + 5.0, j + 2500.0) for t, j in samples]

    found = attribute([*spans[:100], *spans_of(evaluation, 1), *later_spans], moved)

    assert found.blocking_power_w == pytest.approx(WAITING_W, rel=0.02)


@pytest.mark.parametrize("limited", [False, True])
def test_an_instruction_that_took_far_too_long_waited_first_unless_something_holds_the_clock_down(limited: bool):
    """Seen on a simulated GH200: a host came 0.3 s late, and an iteration seemed to draw a sixth more."""
    spans, samples = training()
    found = attribute(spans, samples)
    *others, backward, _ = spans
    late = replace(backward, end_s=backward.end_s + 0.3)
    before, last = found.did([*others, late], 0.0, [Reading(late.end_s, 900, limited)])[-2:]

    usual_s = backward.end_s - backward.begin_s
    assert last.what == backward.key
    assert last.end_s - last.begin_s == pytest.approx(usual_s + 0.3 * limited, rel=0.02)
    assert limited or (before.what is Between.WAITING and before.end_s - before.begin_s >= 0.29)
