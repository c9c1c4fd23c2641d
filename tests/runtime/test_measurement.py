"""What a rank has measured: energies between the points of the counter, median traces, and evaluations told apart."""

import math

import pytest

from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.trace import TimedOperation
from perseus_ds.profiling.recorder import RecordedIteration
from perseus_ds.runtime.measurement import KEPT_ITERATIONS, Measurements

WATTS = 400.0
FORWARD, EXCHANGE, BACKWARD = Operation(Kind.FORWARD), Operation(Kind.EXCHANGE), Operation(Kind.BACKWARD)


def recorded(begin_s: float, *operations: Operation, slow: float = 1.0, **how) -> RecordedIteration:
    """An iteration whose operations take a second each, one after the other."""
    timed = [TimedOperation(one, slow * at, slow * (at + 1.0), 1410) for at, one in enumerate(operations)]
    return RecordedIteration(begin_s, begin_s + slow * len(operations), tuple(timed), **how)


def measured(*iterations: RecordedIteration, lasts_s: float = 4.0) -> Measurements:
    measurements = Measurements()
    for one in iterations:
        measurements.recorded(one)
        measurements.lasted(one.iteration, one.begin_s, one.begin_s + lasts_s)
    return measurements


@pytest.mark.parametrize("period_s", [0.01, 0.1])
def test_the_energy_of_an_iteration_of_minutes_is_whole(period_s):
    measurements = Measurements()
    for iteration in range(3):
        measurements.lasted(iteration, 100.0 * iteration, 100.0 * (iteration + 1))
    measurements.samples = [(period_s * n, WATTS * period_s * n) for n in range(1, round(250.0 / period_s))]
    assert measurements.energy_j(1) == pytest.approx(100.0 * WATTS)
    assert math.isnan(measurements.energy_j(0)), "the counter was not read at its begin"
    assert math.isnan(measurements.energy_j(2)), "the counter is behind"


@pytest.mark.parametrize(("begin_s", "end_s", "energy_j"), [(0.0, 3.0, 500.0), (0.5, 2.0, 250.0), (1.0, 1.5, 100.0)])
def test_the_energy_lies_on_the_line_between_the_points_of_the_counter(begin_s, end_s, energy_j):
    measurements = Measurements()
    measurements.samples = [(0.0, 1000.0), (1.0, 1100.0), (3.0, 1500.0)]
    measurements.lasted(7, begin_s, end_s)
    assert measurements.energy_j(7) == pytest.approx(energy_j)


def test_a_trace_is_the_median_of_iterations_that_ran_the_same():
    program = (FORWARD, EXCHANGE, BACKWARD)
    iterations = [recorded(10.0 * i, *program, slow=slow, iteration=i) for i, slow in enumerate((1.0, 1.5, 9.0))]
    other = recorded(30.0, FORWARD, BACKWARD, slow=0.1, iteration=3)
    measurements = measured(*iterations[:2], other, iterations[2])

    # Iteration 4 was ended by an exception; the last one that was recorded says what ran.
    trace = measurements.trace([0, 3, 1, 2, 4], stage=1, pipeline=0)

    assert [timed.operation for timed in trace.operations] == list(program)
    assert [timed.duration_s for timed in trace.operations] == pytest.approx([1.5] * 3)
    assert trace.iteration_time_s == 4.0
    assert (trace.stage, trace.pipeline) == (1, 0)
    assert [timed.operation for timed in iterations[0].instructions] == [FORWARD, BACKWARD]


@pytest.mark.parametrize(("slows", "differ"), [((1.0, 1.2, 0.8, 1.3, 0.7), True), ((1.0, 1.01, 0.99, 1.0, 3.0), False)])
def test_a_trace_tells_how_micro_batches_differ_where_they_do(slows, differ):
    iterations = [recorded(10.0 * i, FORWARD, BACKWARD, slow=slow, iteration=i) for i, slow in enumerate(slows)]
    trace = measured(*iterations).trace(range(5), stage=1, pipeline=0)
    assert trace.sizes == (tuple((pytest.approx(slow), pytest.approx(slow)) for slow in slows) if differ else ())
    few = measured(*iterations[:3]).trace(range(3), stage=1, pipeline=0)
    assert few.sizes == (), "too few tell nothing"


def test_an_evaluation_between_two_iterations_is_work_that_does_not_count():
    measurements = measured(recorded(0.0, FORWARD, iteration=0), recorded(100.0, FORWARD, iteration=1))
    measurements.recorded(recorded(300.0, FORWARD, iteration=2))
    measurements.evaluated(recorded(50.0, FORWARD, training=False))
    measurements.evaluated(recorded(200.0, FORWARD, training=False))

    spans = measurements.work(first=1, stage=0).spans()

    assert [(span.begin_s, span.excluded) for span in spans] == [(100.0, False), (200.0, True), (300.0, False)]


def test_work_that_was_asked_about_stays_while_training_goes_on_and_forgets_it():
    measurements = measured(at_clocks(0, 1.0, 1400, 1200), at_clocks(1, 1.0, 1400, 1200))
    measurements.requests = [(0.9, 1400), (1.003, 1200)]
    work = measurements.work(first=0, stage=0)
    question = measurements.energy_question([0, 1], stage=0)
    known = work.spans()
    measurements.forget_before(2)
    measurements.requests += [(30.0, 1410)]
    assert work.spans() == question.work.spans() == known
    assert len(known) == 4


def test_a_clock_is_asked_for_when_the_driver_has_taken_the_request():
    measurements = measured(at_clocks(0, 1.0, 1400, 1200))
    assert [span.asked_s for span in measurements.work(0, stage=0).spans()] == [-math.inf, -math.inf]
    measurements.requests = [(0.9, 1400), (1.003, 1200)]
    assert [span.asked_s for span in measurements.work(0, stage=0).spans()] == [-math.inf, 1.003]


def at_clocks(number: int, slow: float, *clocks_mhz: int) -> RecordedIteration:
    """An iteration of forwards at some clocks, with a transfer before each."""
    timed = []
    for at, mhz in enumerate(clocks_mhz):
        timed.append(TimedOperation(EXCHANGE, slow * at, slow * (at + 0.2), 1410))
        timed.append(TimedOperation(FORWARD, slow * (at + 0.2), slow * (at + 1.0), mhz))
    return RecordedIteration(10.0 * number, 10.0 * number + 9.0, tuple(timed), iteration=number)


def test_the_next_iteration_is_expected_to_be_like_the_latest_with_the_same_clocks():
    plan = IterationClocks(1410, (1400, 1200))
    measurements = Measurements()
    assert measurements.expected_begins_s(plan) == ()
    for number, slow in enumerate((7.0, 1.0, 3.0, 2.0)):
        measurements.recorded(at_clocks(number, slow, 1400, 1200))
    assert measurements.expected_begins_s(plan) == pytest.approx([0.4, 2.4]), "the median of the last three"
    assert measurements.expected_begins_s(IterationClocks(1410, (1400, 1300))) == ()
    measurements.recorded(at_clocks(4, 9.0, 1400, 1300))
    assert measurements.expected_begins_s(plan) == pytest.approx([0.4, 2.4]), "another plan came between"
    for number in range(5, 5 + KEPT_ITERATIONS):
        measurements.recorded(at_clocks(number, 9.0, 1400, 1300))
    assert measurements.expected_begins_s(plan) == (), "long ago"


def test_clocks_that_are_asked_for_early_need_no_earlier_iteration():
    early = IterationClocks(1410, (1400, 1385, 1400), asks_early=True)
    assert Measurements().expected_begins_s(early) == (0.0, 0.0, 0.0)


def test_where_no_clock_changes_nothing_is_expected():
    measurements = measured(at_clocks(0, 1.0, 1400, 1400))
    assert measurements.expected_begins_s(IterationClocks(1410, (1400, 1400))) == ()
    assert measurements.expected_begins_s(IterationClocks(1410, locked=False)) == ()


def test_what_is_forgotten_is_gone_and_the_rest_stays():
    measurements = measured(*(recorded(10.0 * i, FORWARD, iteration=i) for i in range(4)), lasts_s=10.0)
    measurements.evaluated(recorded(5.0, FORWARD, training=False))
    measurements.evaluated(recorded(25.0, FORWARD, training=False))
    measurements.samples = [(0.5 * n, WATTS * 0.5 * n) for n in range(100)]
    measurements.requests = [(18.0, 1200), (21.0, 1410)]
    measurements.shown_w = [(18.0, 300.0), (21.0, 310.0)]

    measurements.forget_before(2)

    assert math.isnan(measurements.time_s(1))
    assert measurements.time_s(2) == 10.0
    assert measurements.energy_j(2) == pytest.approx(10.0 * WATTS)
    assert measurements.samples[0][0] == pytest.approx(19.0)
    assert measurements.requests == [(21.0, 1410)]
    assert measurements.shown_w == [(21.0, 310.0)]
    assert [span.begin_s for span in measurements.work(first=0, stage=0).spans()] == [20.0, 25.0, 30.0]
    latest = measurements.latest()
    assert latest is not None
    assert latest.iteration == 3
