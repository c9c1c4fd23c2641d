"""One rank's iterations: when an exception ends one of them, when they grow while profiled, when another rank fails."""

import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from lone_rank import CLOCKS_MHZ, LoneRank
from made_up_plans import first_table

from perseus_ds.coordination.decision import Decision
from perseus_ds.coordination.events import CheckpointSaved, IterationBegan, JobEnded, PlansAdopted
from perseus_ds.coordination.orders import Order
from perseus_ds.coordination.phases import Phase
from perseus_ds.coordination.requests import BeginProfiling
from perseus_ds.coordination.rounds import RankStatus, RoundResult, condense
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.clocks import UNLOCKED
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.runtime.measurement import KEPT_ITERATIONS


def one_f_one_b(microbatches: int) -> list[Kind]:
    return [Kind.FORWARD] * microbatches + [Kind.BACKWARD] * microbatches


def test_an_iteration_that_an_exception_ends_does_not_shift_the_others(tmp_path):
    rank = LoneRank(tmp_path)
    for iteration in range(6):
        if iteration == 2:
            rank.runs(Kind.FORWARD, ends=False)
        else:
            rank.runs(Kind.FORWARD, Kind.BACKWARD)
    rank.session.iteration_begin(microbatches=1, training=True)

    measured = rank.meter.measurements
    for iteration in (0, 1, 3, 4, 5):
        begin_s, end_s = measured._bounds_s[iteration]
        assert begin_s <= measured._recorded[iteration].begin_s < end_s
    assert 2 not in measured._recorded
    assert len(measured.trace(range(6), stage=0, pipeline=0).operations) == 2
    assert [row[0] for row in rank.bus.signals] == [0, 1, 2, 3, 4, 5]


def test_an_evaluation_counts_neither_as_time_nor_as_energy_of_an_iteration(tmp_path):
    rank = LoneRank(tmp_path)
    # A GPU that always draws 100 W.
    rank.gpu.drain_samples = lambda: [(time.monotonic(), 100.0 * time.monotonic())]
    for iteration in range(5):
        rank.runs(Kind.FORWARD, Kind.BACKWARD, takes_s=0.01 * (1 + iteration))
        if iteration == 2:
            rank.session.iteration_begin(microbatches=1, training=False)
            rank.works(Kind.FORWARD, takes_s=0.5)
            rank.session.iteration_end()

    statuses = [RankStatus(*row) for row in rank.bus.signals]
    times_s = {int(one.iteration): one.iteration_time_s for one in statuses}
    energies_j = {int(one.iteration) - 1: one.energy_j for one in statuses}
    assert sorted(times_s) == [0, 1, 2, 3]
    assert max(times_s.values()) < 0.4
    for iteration in (1, 2):
        assert energies_j[iteration] == pytest.approx(100.0 * times_s[iteration], rel=0.05, abs=0.05)
    assert [event.iteration for event in rank.events if isinstance(event, IterationBegan)] == [0, 1, 2, 3, 4]
    assert set(rank.gpu.asked_mhz) == {UNLOCKED}


def test_iterations_that_grow_while_they_are_profiled_are_swept_too_and_leave_no_clock_of_0_mhz(tmp_path):
    rank = LoneRank(tmp_path, sets_clocks=True)
    for _ in range(7):
        rank.runs(*one_f_one_b(2))
    for microbatches in (2, 3, 3, 1, 1, 2):
        rank.runs(*one_f_one_b(microbatches))
    assert rank.executor.profiler.iterations == 6
    rank.meter.collect()
    spans = rank.meter.measurements.work(7, stage=0).spans()
    assert {span.frequency_mhz for span in spans} == set(CLOCKS_MHZ)
    assert all(span.end_s == span.begin_s for span in spans if span.key is None), "a clock is asked for, no other work"
    phases = [event.phase for event in rank.events if isinstance(event, IterationBegan)]
    assert phases == [Phase.WARMUP] * 3 + [Phase.BASELINE] * 4 + [Phase.PROFILING] * 6


def test_a_long_baseline_is_kept_to_its_end_and_later_only_the_latest_iterations(tmp_path):
    rank = LoneRank(tmp_path, warmup_iterations=2, baseline_iterations=56, mode="observe")
    known = []
    for _ in range(66):
        rank.runs(Kind.FORWARD, Kind.BACKWARD, takes_s=0.0)
        known.append(min(rank.meter.measurements._bounds_s, default=0))
    assert known[:59] == [0] * 59
    assert known[59:] == [59 + at - KEPT_ITERATIONS for at in range(7)]


def test_a_simulated_gpu_hears_of_every_iteration_and_operation(tmp_path):
    rank = LoneRank(tmp_path)
    rank.runs(Kind.FORWARD, takes_s=0.0)
    rank.session.iteration_begin(microbatches=1, training=False)
    rank.session.iteration_end()
    rank.runs(Kind.BACKWARD, takes_s=0.0)
    told = [("begins", 0), ("begin", Kind.FORWARD), ("end", Kind.FORWARD), ("ends", None)]
    told += [("begins", None), ("ends", None)]
    told += [("begins", 1), ("begin", Kind.BACKWARD), ("end", Kind.BACKWARD), ("ends", None)]
    assert rank.gpu.told == told


def test_what_a_checkpoint_gets_is_for_the_subscribers_to_write(tmp_path):
    rank = LoneRank(tmp_path)
    rank.session.save(tmp_path / "perseus_ds")
    assert rank.events == [CheckpointSaved(tmp_path / "perseus_ds")]


def test_a_rank_that_fails_says_which_it_is(tmp_path):
    rank = LoneRank(tmp_path)
    rank.runs(Kind.FORWARD, Kind.BACKWARD)
    assert not rank.session.pause(ValueError("a bug"))
    told = RankStatus(*rank.bus.signals[-1])
    assert (told.iteration, told.failed) == (0, 1.0)


def test_the_time_that_a_round_was_waited_for_is_told_in_the_next(tmp_path):
    rank = LoneRank(tmp_path)
    for _ in range(2):
        rank.runs(Kind.FORWARD, Kind.BACKWARD)
    answer = rank.session._round.result()

    def late(timeout_s):
        time.sleep(0.2)
        return answer

    rank.session._round = SimpleNamespace(result=late)
    rank.runs(Kind.FORWARD, Kind.BACKWARD)
    assert 0.2 <= RankStatus(*rank.bus.signals[-1]).waited_s < 0.2 + 5.0
    assert RankStatus(*rank.bus.signals[-2]).waited_s < 0.2


def test_tensor_parallel_ranks_sweep_alike_whatever_each_has_measured(tmp_path):
    swept = []
    for takes_s in (0.001, 0.004):
        rank = LoneRank(tmp_path, shard_size=2, latency_s=0.003)
        for _ in range(12):
            rank.runs(*one_f_one_b(8), takes_s=takes_s)
        rank.meter.collect()
        as_agreed_on = BeginProfiling(least_iteration_s=0.040, baseline=range(3, 11))
        rank.executor.execute(as_agreed_on, 12)
        swept.append([rank.executor.profiler.next_clocks() for _ in range(10)])
    assert swept[0] == swept[1]


def test_a_rank_that_hears_of_a_failure_says_nothing_more(tmp_path):
    rank = LoneRank(tmp_path)
    for _ in range(3):
        rank.runs(Kind.FORWARD, Kind.BACKWARD)
    failed = RankStatus(2, failed=1.0).row()
    rank.session._round = SimpleNamespace(result=lambda _: condense(np.array([failed]), 1)[None])
    said = len(rank.bus.signals)
    with pytest.raises(PerseusError, match="rank 0"):
        rank.session.iteration_begin(1, training=True)
    assert len(rank.bus.signals) == said


def test_an_order_is_repeated_until_a_round_holds_it(tmp_path):
    rank = LoneRank(tmp_path)
    rank.session.place(Order("straggler", 0, 1.3))
    for _ in range(5):
        rank.runs(Kind.FORWARD, Kind.BACKWARD)
    told = [RoundResult(condense(np.array([row]), 1)[None], 1).orders for row in rank.bus.signals]
    assert told == [[Order("straggler", 0, 1.3)], [], [], []]


def test_the_end_closes_the_bus_before_anybody_writes(tmp_path):
    rank = LoneRank(tmp_path)
    rank.runs(Kind.FORWARD, Kind.BACKWARD)
    closed = []
    rank.session._subscribers = [lambda event: closed.append((type(event), rank.bus.closed))]
    rank.session.close()
    assert closed == [(JobEnded, True)]


def test_the_latencies_that_all_ranks_have_told_are_expected_of_each(tmp_path):
    rank, table = LoneRank(tmp_path), first_table(1)
    table = replace(table, groups=(replace(table.groups[0], switch_latency_s={900: 0.03}),))
    decision = Decision(Phase.SOLVING, (), 0.0, (PlansAdopted(1, table, None),), ())
    rank.session._controller = SimpleNamespace(decide=lambda _: decision, phase=Phase.SOLVING, table=table)
    rank.runs(Kind.FORWARD, Kind.BACKWARD)
    assert rank.gpu.expected_s == {900: 0.03}


def test_once_the_clocks_of_a_plan_have_been_timed_the_gpu_is_read_calmly(tmp_path):
    rank, table, calm = LoneRank(tmp_path), first_table(1), []
    rank.gpu.watch_calmly = calm.append
    rank.runs(Kind.FORWARD, Kind.BACKWARD)
    assert calm == []
    decision = Decision(Phase.SOLVING, (), 0.0, (PlansAdopted(1, table, None),), ())
    rank.session._controller = SimpleNamespace(decide=lambda _: decision, phase=Phase.SOLVING, table=table)
    rank.runs(Kind.FORWARD, Kind.BACKWARD)
    decision = replace(decision, events=())
    for _ in range(11):
        rank.runs(Kind.FORWARD, Kind.BACKWARD)
    assert calm == []
    rank.runs(Kind.FORWARD, Kind.BACKWARD)
    assert calm == [table.max_time_s]


def test_clocks_come_when_the_plan_wants_them_but_for_those_that_the_guard_has_raised(tmp_path):
    rank, table, begun = LoneRank(tmp_path), first_table(1), []
    rank.meter.iteration_begins = lambda number, begin_s, clocks, begins_s: begun.append(clocks)
    plan = table.groups[0].base.points[-1]
    aims_s = tuple(dict.fromkeys(list(stage)[1:2], 0.004) for stage in plan.clocks_mhz)
    plan = replace(plan, aims_s=aims_s)
    for caution in (0.0, 0.5):
        decision = Decision(Phase.ENFORCING, (plan,), caution, (), ())
        rank.session._controller = SimpleNamespace(
            decide=lambda _, one=decision: one, phase=decision.phase, table=table
        )
        rank.runs(Kind.FORWARD, Kind.BACKWARD)
    planned, raised = begun
    assert planned.aims_s == plan.aims_of(0)
    assert planned.aim_s(1) == 0.004
    assert raised.aims_s == ()
