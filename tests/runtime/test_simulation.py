"""What a job's operations are on virtual GPUs, and where the host waits for them as the frameworks do."""

import time

import numpy as np
import pytest

from perseus_ds.config import FaultConfig, SimulatorConfig, ThrottleConfig
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.events import Direction, Operation, Topology, Transfer
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey, read_profile
from perseus_ds.runtime.simulation import Simulation, profile_file, simulated_profile
from perseus_ds.simulator.driver import SIMULATOR_VARIABLE
from perseus_ds.simulator.state import state_path, state_paths
from perseus_ds.simulator.stream import Item

FORWARD_S = 0.0445 * 0.5  # about: stage 0 of the profile, scaled
A100 = SimulatorConfig(gpu="a100", time_scale=0.5)
TO_NEXT = (Transfer(Direction.SEND, 1, "activation"),)


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setenv(SIMULATOR_VARIABLE, "")

    def make(framework="megatron-core 0.16.1", config=A100, **place):
        values = {"rank": 0, "world_size": 4, "pipeline": 0, "pipelines": 2, "stage": 0, "stages": 2, **place}
        topology = Topology(framework=framework, **values)
        return Simulation(config, tmp_path, topology)

    return make


def seconds(call):
    begin_s = time.monotonic()
    call()
    return time.monotonic() - begin_s


def runs(simulation, operation):
    """Report an operation and return how long its begin and its end have held up the host, in s."""
    begin_s = seconds(lambda: simulation.operation_begin(operation))
    return begin_s, seconds(lambda: simulation.operation_end(operation))


def items(simulation, kind):
    state = simulation.gpu.card.file.state
    return [state.items[slot] for slot in range(state.tail) if state.items[slot].kind == kind]


def test_an_ideal_gpu_is_waited_for_after_each_instruction(make):
    simulation = make(config=SimulatorConfig(time_scale=0.5))
    simulation.iteration_begins(0)
    enqueued_s, waited_s = runs(simulation, Operation(Kind.FORWARD, 0))
    assert enqueued_s < 0.5 * FORWARD_S < waited_s


def test_the_gpu_notes_where_training_iterations_begin(make):
    simulation = make()
    for iteration in (3, None, 4):
        simulation.iteration_begins(iteration)
    assert [item.number for item in items(simulation, Item.ITERATION)] == [3, 4]


def test_megatron_waits_after_an_exchange_and_deepspeed_does_not(make):
    waited_s = {}
    for framework in ("megatron-core 0.16.1", "deepspeed 0.19.8"):
        simulation, other = make(framework), make(framework, rank=2, stage=1)
        for one in (simulation, other):
            one.iteration_begins(0)
        other.operation_begin(Operation(Kind.EXCHANGE, transfers=(Transfer(Direction.RECEIVE, 0, "activation"),)))
        assert sum(runs(simulation, Operation(Kind.FORWARD, 0))) < 0.5 * FORWARD_S
        waited_s[framework] = sum(runs(simulation, Operation(Kind.EXCHANGE, transfers=TO_NEXT)))
    on_megatron_s, on_deepspeed_s = waited_s.values()
    assert on_deepspeed_s < 0.5 * (FORWARD_S - 0.01) < on_megatron_s  # it is let go 10 ms early


def test_deepspeed_waits_before_a_forward_and_after_a_load(make):
    simulation = make("deepspeed 0.19.8")
    simulation.iteration_begins(0)
    runs(simulation, Operation(Kind.BACKWARD, 0))
    before_s, after_s = runs(simulation, Operation(Kind.FORWARD, 1))
    assert after_s < 0.01 < before_s
    runs(simulation, Operation(Kind.BACKWARD, 1))
    assert sum(runs(simulation, Operation(Kind.LOAD, 2))) > 0.01


def test_a_schedules_end_is_waited_for_with_megatrons_optimizer(make):
    simulation = make(pipelines=1)
    simulation.iteration_begins(0)
    runs(simulation, Operation(Kind.FORWARD, 0))
    assert seconds(simulation.iteration_ends) > 0.01
    rows = simulation.gpu.card.rows
    assert [item.curve for item in items(simulation, Item.WORK)] == [
        rows[CurveKey(0, Kind.FORWARD)],
        rows[CurveKey(0, Kind.OPTIMIZER)],
    ]


def test_the_last_backward_is_slower_beside_the_reduction(make):
    simulation = make()
    for iteration in range(2):
        simulation.iteration_begins(iteration)
        for microbatch in range(3):
            runs(simulation, Operation(Kind.BACKWARD, microbatch))
    factors = [item.factor for item in items(simulation, Item.WORK)]
    assert factors[3:] == [1.0, 1.0, 1.08]  # the first iteration only tells how many there are


def test_replicas_meet_at_the_reduction_which_deepspeed_reports_twice(make):
    simulation = make("deepspeed 0.19.8")
    simulation.iteration_begins(0)
    for _ in range(2):
        runs(simulation, Operation(Kind.REDUCE))
    assert len(items(simulation, Item.WORK)) == 1
    state = simulation.gpu.card.file.state
    assert [state.dynamic.channels[item.channel].peer for item in items(simulation, Item.POST)] == [2, 2]


def test_transfers_reduction_and_optimizer_follow_the_clock_in_part(make):
    simulation = make()
    rows, curves = simulation.gpu.card.rows, simulation.gpu.card.curves
    clocks_mhz = simulation.gpu.clocks_mhz
    for kind, seconds_at_top in ((Kind.EXCHANGE, 0.0015), (Kind.REDUCE, 0.03), (Kind.OPTIMIZER, 0.02)):
        curve = curves[rows[CurveKey(0, kind)]]
        assert curve[0][0] == pytest.approx(0.5 * seconds_at_top)
        assert curve[-1][0] / curve[0][0] - 1.0 == pytest.approx(0.5 * (clocks_mhz[0] / clocks_mhz[-1] - 1.0))


def test_a_gpu_is_held_below_a_ceiling_for_a_while(make):
    throttle = ThrottleConfig(stage=0, begin_iteration=1, end_iteration=2, ceiling_mhz=1000)
    simulation = make(config=SimulatorConfig(throttle=(throttle,)))
    seen_mhz = []
    for iteration in range(3):
        simulation.iteration_begins(iteration)
        seen_mhz.append(simulation.gpu.sm_clock_mhz())
    assert seen_mhz == [1410, 990, 1410]


def test_a_straggler_is_slow_from_its_first_iteration_to_its_last(make):
    throttle = ThrottleConfig(stage=0, begin_iteration=1, end_iteration=3, slowdown=1.5)
    elsewhere = ThrottleConfig(stage=1, begin_iteration=0, end_iteration=9, slowdown=3.0)
    replica = ThrottleConfig(stage=0, pipeline=1, begin_iteration=0, end_iteration=9, slowdown=3.0)
    simulation = make(config=SimulatorConfig(throttle=(throttle, elsewhere, replica)))
    slowdowns = []
    for iteration in (0, 1, None, 2, 3):
        simulation.iteration_begins(iteration)
        slowdowns.append(simulation.gpu.card.file.state.dynamic.slowdown)
    assert slowdowns == [1.0, 1.5, 1.5, 1.5, 1.0]


@pytest.mark.parametrize(("begin", "faults"), [(0, [4, 4, 4]), (1, [0, 0, 4])])
def test_a_fault_is_there_from_its_iteration_on_and_one_of_the_first_from_the_start(make, begin, faults):
    fault = FaultConfig(stage=0, fault="no_permission", begin_iteration=begin)
    other = FaultConfig(stage=1, fault="gpu_is_lost")
    simulation = make(config=SimulatorConfig(faults=(fault, other)))
    seen = [simulation.gpu.card.file.state.dynamic.fault_code]
    for iteration in range(2):
        simulation.iteration_begins(iteration)
        seen.append(simulation.gpu.card.file.state.dynamic.fault_code)
    assert seen == faults


def test_ranks_that_share_an_instruction_meet_after_it(make):
    simulation = make(rank=1, shard_rank=1, shard_size=3, pipelines=1)
    simulation.iteration_begins(0)
    simulation.operation_begin(Operation(Kind.FORWARD, 0))
    channels = simulation.gpu.card.file.state.dynamic.channels
    assert [channels[item.channel].peer for item in items(simulation, Item.POST)] == [0, 2]
    assert len(items(simulation, Item.WAIT)) == 2


def test_a_transfer_that_was_posted_is_waited_for_later_and_another_is_not(make):
    simulation = make()
    simulation.iteration_begins(0)
    simulation.operation_begin(Operation(Kind.WAIT, transfers=TO_NEXT))
    assert items(simulation, Item.WAIT) == []
    simulation.operation_begin(Operation(Kind.POST, transfers=TO_NEXT))
    assert len(items(simulation, Item.POST)) == 1
    simulation.operation_begin(Operation(Kind.WAIT, transfers=TO_NEXT))
    (wait,) = items(simulation, Item.WAIT)
    assert wait.curve == simulation.gpu.card.rows[CurveKey(0, Kind.EXCHANGE)]
    simulation.operation_begin(Operation(Kind.POST, transfers=TO_NEXT))
    simulation.iteration_begins(1)
    simulation.operation_begin(Operation(Kind.WAIT, transfers=TO_NEXT))
    assert len(items(simulation, Item.WAIT)) == 1, "what an iteration before has posted is over"


def test_every_rank_has_a_gpu_of_its_own(make, tmp_path):
    for rank in range(8):
        make(rank=rank, world_size=8, pipeline=rank // 4, stage=rank // 2 % 2, shard_rank=rank % 2, shard_size=2)
    assert state_paths(tmp_path / "gpus") == [state_path(tmp_path / "gpus", index) for index in range(8)]


def test_each_pipeline_may_have_its_profile(make):
    config = SimulatorConfig(pipeline_profiles=("gpt3-175b-a100-sxm", "gpt3-175b-a40"))
    clocks = [max(make(config=config, pipeline=pipeline).gpu.clocks_mhz) for pipeline in range(2)]
    assert clocks == [1410, 1740]


def test_the_truth_is_the_profile_of_the_chosen_stages_scaled_and_divided_among_chunks():
    shipped = read_profile(profile_file("gpt3-175b-a100-sxm"))
    config = SimulatorConfig(stages=(4, 7), time_scale=0.5, top_clock_mhz=705)
    truth = simulated_profile(config, stages=2, chunks=2)
    assert sorted(truth.curves) == [
        CurveKey(stage, kind, chunk)
        for stage in range(2)
        for kind in (Kind.BACKWARD, Kind.FORWARD)
        for chunk in range(2)
    ]
    for stage, source in enumerate((4, 7)):
        was = shipped.curves[CurveKey(source, Kind.BACKWARD)]
        for chunk in range(2):
            now = truth.curves[CurveKey(stage, Kind.BACKWARD, chunk)]
            assert [point.time_s for point in now] == pytest.approx([0.25 * point.time_s for point in was])
            assert [point.energy_j for point in now] == pytest.approx([0.25 * point.energy_j for point in was])
            assert [point.frequency_mhz for point in now] == [round(point.frequency_mhz / 2) for point in was]


@pytest.mark.parametrize("stages", [None, (0,), (0, 8)])
def test_stages_that_the_profile_does_not_have_are_refused(stages):
    needed = 9 if stages is None else 2
    with pytest.raises(PerseusError, match="simulator-stages"):
        simulated_profile(SimulatorConfig(stages=stages), needed)


def test_half_a_backward_takes_half_of_it_and_a_joint_pass_both(make):
    card = make().gpu.card

    def first(kind, *chunks):
        return card.curves[card.rows[CurveKey(0, kind, *chunks)]][0]

    forward, backward = first(Kind.FORWARD), first(Kind.BACKWARD)
    for at in range(2):  # seconds, joules
        assert first(Kind.INPUT_GRADIENT)[at] == first(Kind.WEIGHT_GRADIENT)[at] == pytest.approx(backward[at] / 2)
        assert first(Kind.FORWARD_BACKWARD, 0, 0)[at] == pytest.approx(forward[at] + backward[at])


def test_a_micro_batch_is_as_large_on_all_stages_and_another_one_in_the_next_iteration(make):
    config = A100.model_copy(update={"microbatch_spread": 0.2})

    def sizes(**place):
        simulation = make(config=config, **place)
        found = []
        for iteration in range(20):
            simulation.iteration_begins(iteration)
            for operation in (Operation(Kind.FORWARD, 1), Operation(Kind.BACKWARD, 1)):
                simulation._work(operation)
            found.append([item.size for item in items(simulation, Item.WORK)][-2:])
        return np.array(found)

    first = sizes(stage=0)
    assert (first[:, 0] == first[:, 1]).all()
    assert (sizes(stage=1, rank=1) == first).all()
    assert (sizes(pipeline=1, rank=2) != first).all(), "other data"
    assert len(np.unique(first[:, 0])) == 20
    assert first.mean() == pytest.approx(1.0, abs=0.15)
    assert first[:, 0].std() == pytest.approx(0.2, rel=0.5)
