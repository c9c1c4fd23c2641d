"""The meter: what one rank measures of training iterations, and what it leaves out."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from lone_rank import CLOCKS_MHZ, LoneGpu
from made_up_plans import first_table

from perseus_ds.coordination.plan_table import PlanTable
from perseus_ds.coordination.stage_condition import Health
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.clocks import UNLOCKED, IterationClocks
from perseus_ds.pipeline.events import Operation, Topology
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey
from perseus_ds.runtime.measurement import KEPT_ITERATIONS
from perseus_ds.runtime.meter import RankMeter

FORWARD, BACKWARD, EXCHANGE = Operation(Kind.FORWARD, 0), Operation(Kind.BACKWARD, 0), Operation(Kind.EXCHANGE)


class SteppedTimer:
    """A host that is told what time it is; marks are reached when they are made."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def mark(self, followed: bool = False) -> float:
        return self.now_s

    def when_reached(self, mark, callback, *arguments) -> None:
        callback(*arguments, mark)

    def times_s(self, marks) -> list[float]:
        return list(marks)


class Rank:
    """A rank whose operations take as long as the test says."""

    def __init__(self, stage: int = 0) -> None:
        self.gpu = LoneGpu()
        self.gpu.timer = self.timer = SteppedTimer()
        self.meter = RankMeter(self.gpu, Topology(0, 2, 0, 1, stage, 2, framework="made up 1"))

    def runs(
        self,
        number: int | None,
        *operations: tuple[Operation, float],
        clocks=None,
        ends: bool = True,
        planned_s: Sequence[float] = (),
    ) -> None:
        self.meter.iteration_over(self.timer.now_s)
        if number is None:
            self.meter.evaluation_begins()
        else:
            clocks = clocks or IterationClocks(CLOCKS_MHZ[0])
            self.meter.iteration_begins(number, self.timer.now_s, clocks, lambda: planned_s)
        for operation, takes_s in operations:
            self.meter.operation_begin(operation)
            self.timer.now_s += takes_s
            self.meter.operation_end(operation)
        if ends:
            self.meter.iteration_end()


def test_an_iteration_lasts_until_the_next_or_an_evaluation_begins():
    rank = Rank()
    rank.runs(0, (FORWARD, 1.0))
    rank.timer.now_s += 0.5
    rank.runs(None, (FORWARD, 10.0))
    rank.runs(1, (FORWARD, 1.0))
    rank.runs(2)
    times_s = [rank.meter.measurements.time_s(number) for number in (0, 1, 2)]
    assert times_s[:2] == [1.5, 1.0]
    assert times_s[2] != times_s[2], "it still lasts"


def test_an_iteration_that_an_exception_ends_is_not_among_what_ran():
    rank = Rank()
    rank.runs(0, (FORWARD, 1.0))
    rank.runs(1, (FORWARD, 1.0), ends=False)
    rank.runs(2, (FORWARD, 3.0))
    rank.meter.collect()
    assert rank.meter.measurements.latest().iteration == 2
    assert [span.end_s - span.begin_s for span in rank.meter.measurements.work(0, 0).spans()] == [1.0, 3.0]


def test_clocks_are_asked_for_as_planned_and_switches_counted():
    rank = Rank()
    high, low = CLOCKS_MHZ
    rank.runs(0, (FORWARD, 1.0), (BACKWARD, 1.0), clocks=IterationClocks(high, (high, low)))
    assert rank.gpu.asked_mhz[:2] == [high, low]
    assert rank.meter.switches == IterationClocks(high, (high, low)).switches == 2


def test_the_plan_tells_when_instructions_begin_until_an_iteration_has_told():
    rank = Rank()
    clocks, work = IterationClocks(1400, (1400, 1200)), ((FORWARD, 1.0), (BACKWARD, 1.0))
    expected = []
    for number in range(2):
        rank.runs(number, *work, clocks=clocks, planned_s=(0.0, 0.9))
        expected.append(rank.meter._recorder._pending[-1].token.expected_begins_s)
        rank.meter.collect()
    assert expected == [(0.0, 0.9), (0.0, 1.0)]


def test_a_rank_rests_in_its_first_wait_once_an_iteration_has_told_how_long_it_is():
    rank = Rank()
    rank.gpu.latency_s = lambda mhz: {1400: 0.01, 1200: 0.02}[mhz]
    clocks = IterationClocks(1400, (1400, 1400), rest_mhz=1200)
    rested = []
    for number in range(2):
        rank.runs(number, (EXCHANGE, 0.5), (FORWARD, 1.0), (EXCHANGE, 0.5), (BACKWARD, 1.0), clocks=clocks)
        rested.append((rank.meter._recorder._pending[-1].token.rests_until_s, rank.meter.switches))
        rank.meter.collect()
    assert rested == [(0.0, 0), (pytest.approx(0.9 * 0.5 - 2 * 0.02), 2)]


def test_an_evaluation_runs_without_a_lock():
    rank = Rank()
    high, low = CLOCKS_MHZ
    rank.runs(0, (FORWARD, 1.0), clocks=IterationClocks(high, (low,)))
    assert rank.gpu.asked_mhz[-1] == low
    rank.runs(None, (FORWARD, 1.0))
    assert rank.gpu.asked_mhz[-1] == UNLOCKED


def test_a_late_switch_is_counted_in_the_collection_that_it_arrives_in():
    rank = Rank()
    clocks = IterationClocks(1400, (1400, 1200))
    rank.runs(0, (FORWARD, 1.0), (BACKWARD, 1.0), clocks=clocks)
    token = rank.meter._recorder._pending[0].token
    token.requested_s.update({0: -1.0, 1: 1.5})  # the backward began at 1.0
    rank.meter.collect()
    assert rank.meter.late_switches == 1
    assert rank.meter.share_at_clock == pytest.approx((1.0 + 0.5) / 2, abs=0.02)  # the median of two
    rank.meter.collect()
    assert rank.meter.late_switches == 0


def test_iterations_without_an_instruction_are_an_error_that_names_the_framework():
    rank = Rank()
    rank.meter.collect()
    rank.runs(0, (EXCHANGE, 1.0))
    with pytest.raises(PerseusError, match="made up 1"):
        rank.meter.collect()


def test_what_is_old_is_forgotten():
    rank = Rank()
    for number in range(KEPT_ITERATIONS + 3):
        rank.runs(number, (FORWARD, 1.0))
    rank.meter.collect()
    rank.meter.forget(KEPT_ITERATIONS + 2)
    assert rank.meter.measurements.time_s(1) != rank.meter.measurements.time_s(1)
    assert rank.meter.measurements.time_s(2) == 1.0


@pytest.mark.parametrize("stage", [0, 1])
def test_the_slowdown_is_measured_over_expected_time_on_this_stage_at_the_clock_that_ran(stage):
    table = first_table(1)
    expected_s = {(CurveKey(stage, kind), 1400): 2.0 for kind in (Kind.FORWARD, Kind.BACKWARD)}
    table = replace(table, groups=(replace(table.groups[0], expected_times_s=expected_s),))
    rank = Rank(stage)
    assert rank.meter.health(table) == Health(), "nothing has run"
    rank.runs(0, (FORWARD, 2.6), (EXCHANGE, 9.0), (BACKWARD, 2.6))
    rank.meter.collect()
    assert rank.meter.health(table) == (pytest.approx(1.3), 0)
    assert rank.meter.health(None) == Health()


def expecting(times_s: dict[int, float]) -> PlanTable:
    """A plan table with the time of forwards and backwards by clock."""
    table = first_table(1)
    expected_s = {(CurveKey(0, kind), mhz): s for kind in (Kind.FORWARD, Kind.BACKWARD) for mhz, s in times_s.items()}
    return replace(table, groups=(replace(table.groups[0], expected_times_s=expected_s),))


def test_an_iteration_is_told_of_once():
    rank, table = Rank(), expecting({1400: 2.0})
    found = []
    for number, ends in enumerate([True, False, True]):
        if ends:  # else the host looks before the device is through
            rank.runs(number, (FORWARD, 3.0))
        rank.meter.collect()
        found.append(rank.meter.health(table).slowdown)
    assert found == [1.5, pytest.approx(math.nan, nan_ok=True), 1.5]


def test_a_clock_far_too_late_is_no_slow_gpu_unless_it_was_in_the_iteration_before():
    rank, table = Rank(), expecting({1400: 2.0, 1200: 3.0})
    clocks = IterationClocks(1200, (1200, 1400, 1400, 1400))
    found = []
    for number, second_s in enumerate([2.0, 3.0, 3.0, 2.0, 3.2]):
        rank.runs(number, (FORWARD, 3.0), *[(BACKWARD, second_s)] * 3, clocks=clocks)
        rank.meter._recorder._pending[0].token.requested_s[1] = rank.timer.now_s - 3 * second_s
        rank.meter.collect()
        found.append(rank.meter.health(table).slowdown)
    assert found == pytest.approx([1.0, 1.0, 1.5, 1.0, 1.6])


def test_a_slow_gpu_has_not_recovered_where_a_new_plan_makes_its_instructions_look_late():
    """Those at the highest clock take as long as usual at the lower one, and after a switch these are others."""
    rank, table = Rank(), expecting({1400: 2.0, 1200: 3.0})
    before, after = IterationClocks(1200, (1200, 1400, 1400)), IterationClocks(1200, (1200,) * 3 + (1400,) * 4)
    found = []
    for number, (clocks, slowdown) in enumerate([(before, 1.5)] * 2 + [(after, 1.5)] * 2 + [(after, 1.0)]):
        low, high = (clocks.planned_mhz.count(mhz) for mhz in (1200, 1400))
        rank.runs(number, *[(FORWARD, 3.0 * slowdown)] * low, *[(FORWARD, 2.0 * slowdown)] * high, clocks=clocks)
        rank.meter._recorder._pending[0].token.requested_s[low] = rank.timer.now_s - high * 2.0 * slowdown
        rank.meter.collect()
        found.append(rank.meter.health(table).slowdown)
    assert found == pytest.approx([1.0, 1.5, 1.5, 1.5, 1.0])


def test_what_few_other_instructions_do_makes_no_slow_gpu_of_late_clocks():
    rank, table = Rank(), expecting({1400: 2.0, 1200: 3.0})
    clocks = IterationClocks(1200, (1200, 1400, 1400, 1400))
    rank.runs(0, (FORWARD, 3.3), *[(BACKWARD, 3.0)] * 3, clocks=clocks)
    rank.meter._recorder._pending[0].token.requested_s[1] = 3.3
    rank.meter.collect()
    assert rank.meter.health(table) == Health()


def test_a_stage_is_held_at_its_gpu_s_ceiling_while_its_times_say_so():
    table, rank = expecting({mhz: 2800 / mhz for mhz in (1400, 1200)}), Rank()
    found = []
    for number, (held_mhz, takes_s) in enumerate([(0, 2.0), (1200, 7 / 3), (1200, 7 / 3), (1200, 2.0)]):
        rank.gpu.held_mhz = held_mhz
        rank.runs(number, (FORWARD, takes_s), (BACKWARD, takes_s))
        rank.meter.collect()
        found.append(rank.meter.health(table))
    held = (pytest.approx(7 / 6), 1200)
    assert found == [(1.0, 0), held, held, (1.0, 0)]
