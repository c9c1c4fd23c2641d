"""Profile, plan and enforcement in virtual time; each pass line fails where something is broken."""

from dataclasses import replace

import pytest

from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.trace import TimedOperation
from perseus_ds.profiling.recorder import RecordedIteration
from perseus_ds.silicon.lab import Asked
from perseus_ds.silicon.virtual_clocked import VirtualClocked
from perseus_ds.silicon.virtual_lab import VirtualLab
from perseus_ds.silicon.whole_loop import judge, measure, shares

PROFILED = 20  # iterations at most


@pytest.fixture(scope="module")
def loop(virtual_lab):
    return measure(virtual_lab)


def test_iterations_are_as_planned_and_clocks_on_time(loop):
    outcome = judge(loop)
    assert outcome.passed, outcome.why
    assert loop.profiled <= PROFILED
    assert outcome.figures["clock_late_p50_ms"] < 1.0


def test_the_plan_is_a_tenth_slower_than_the_highest_clocks_and_changes_them(loop):
    assert len(set(loop.plan.frequency_mhz.values())) >= 2
    assert loop.plan.time_s == pytest.approx(1.1 * 6 * (0.06 + 0.12), rel=0.02)


class SlowsDown(VirtualClocked):
    """After the profile, everything takes longer than it did."""

    count = 0

    def run(self, kind):
        self.count += 1
        super().run(kind)
        if self.count > 12 * (PROFILED + 4):
            self._lab.stall(0.003)


class Hasty(VirtualClocked):
    """Its latency is told as longer than it is: clocks come while the instruction before still runs."""

    def latency_s(self, mhz):
        return super().latency_s(mhz) + 0.012


@pytest.mark.parametrize(("kind", "why"), [(SlowsDown, "over the prediction"), (Hasty, "of its time at its clock")])
def test_what_is_broken_is_told(make_lab, kind, why):
    class Lab(VirtualLab):
        def clocked(self):
            return kind(self, self._gpu)

    outcome = judge(measure(make_lab(Lab)))
    assert not outcome.passed
    assert why in outcome.why


def test_a_plan_that_hardly_switches_tells_nothing(loop):
    assert "too few to tell" in judge(replace(loop, plan=replace(loop.plan, switches=2))).why


def test_a_share_counts_from_the_clock_s_arrival():
    operations = (
        TimedOperation(Operation(Kind.FORWARD, 0), 0.0, 1.0, 1980),
        TimedOperation(Operation(Kind.BACKWARD, 0), 1.0, 3.0, 1500),
    )
    iteration = RecordedIteration(10.0, 13.0, operations)
    # The backward's clock is there half a second late, and the next forward's a quarter of a second early.
    log = [Asked(1980, 9.0), Asked(1500, 11.5), Asked(1980, 12.75)]
    assert shares(iteration, log) == [(1.0, 0.0), (pytest.approx(1.25 / 1.5), pytest.approx(0.5))]


def test_a_clock_that_never_came_has_no_share():
    operations = (TimedOperation(Operation(Kind.FORWARD, 0), 0.0, 1.0, 1980),)
    assert shares(RecordedIteration(0.0, 1.0, operations), [Asked(1500, -1.0)]) == [(0.0, 1.0)]
