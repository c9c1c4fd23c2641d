"""The simulated GPUs of a job: their models, their work, and their faults.

The host waits where the frameworks wait for real GPUs. Megatron-Core waits after every exchange, DeepSpeed before
every forward and after every load, and both at the end of an iteration.
"""

from __future__ import annotations

import os
import time
import zlib
from collections import defaultdict, deque
from collections.abc import Iterable
from pathlib import Path

from perseus_ds.config import SimulatorConfig
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.events import Direction, Operation, Topology, Transfer
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint, read_profile
from perseus_ds.simulator.driver import SIMULATOR_VARIABLE
from perseus_ds.simulator.gpu import GpuSpec, VirtualGpu, create_gpu
from perseus_ds.simulator.launch import VirtualEvent, VirtualStream
from perseus_ds.simulator.models import GpuModel, gpu_model
from perseus_ds.simulator.sizes import MicrobatchSizes
from perseus_ds.simulator.state import state_path

__all__ = ["Simulation", "profile_file", "simulated_profile"]

_BETWEEN_ITERATIONS_S = 0.002  # a training loop does something there, which who follows the GPU needs to catch up
_PROFILES = Path(__file__).parents[1] / "simulator" / "profiles"


class Simulation:
    """One rank's virtual GPU and its scheduled throttling and faults.

    Args:
        config: Configuration of the simulator.
        run_dir: Its folder ``gpus`` holds the GPUs' states.
        topology: Position of this rank.

    Attributes:
        gpu: The GPU.

    Raises:
        PerseusError: The profile is missing, wrong, or has too few stages.
    """

    def __init__(self, config: SimulatorConfig, run_dir: Path, topology: Topology) -> None:
        directory = (run_dir / "gpus").absolute()
        directory.mkdir(parents=True, exist_ok=True)
        if config.pipeline_profiles:
            config = config.model_copy(update={"profile": config.pipeline_profiles[topology.pipeline]})
        self._topology = topology
        self._model = gpu_model(config)
        self._megatron = topology.framework.startswith("megatron")
        self._deepspeed = topology.framework.startswith("deepspeed")
        self._microbatches, self._newest = 0, -1  # of the iteration before, and of this one so far
        self._sizes = MicrobatchSizes(config.microbatch_spread, config.seed, topology.pipeline)
        self._reduced = False
        self._posted: defaultdict[Transfer, deque[tuple[int, int]]] = defaultdict(deque)
        self.gpu = self._create(config, directory)
        self._stream = VirtualStream(self.gpu, self._model.launch_queue, self._model.host_lead_s)
        here = (topology.pipeline, topology.stage)
        self._throttles = [t for t in config.throttle if (t.pipeline, t.stage) == here]
        self._faults = [f for f in config.faults if (f.pipeline, f.stage) == here]
        for fault in self._faults:
            if fault.begin_iteration == 0:
                self.gpu.set_fault(fault.fault)

    def _create(self, config: SimulatorConfig, directory: Path) -> VirtualGpu:
        """Create this rank's GPU, replacing one of an earlier run."""
        topology = self._topology
        index = self._index(topology.pipeline, topology.stage, topology.shard_rank)
        path = state_path(directory, index)
        path.unlink(missing_ok=True)
        profile = simulated_profile(config, topology.stages, topology.chunks)
        spec = GpuSpec(
            sorted({point.frequency_mhz for points in profile.curves.values() for point in points}, reverse=True),
            name=f"Simulated GPU ({config.gpu}, {Path(config.profile).stem})",
            seed=config.seed + topology.rank,
            **self._model.physics,
        )
        create_gpu(path, spec, index)
        os.environ[SIMULATOR_VARIABLE] = str(directory)
        gpu = VirtualGpu(path)
        curves = _stage_curves(profile, topology.stage)
        gpu.load_curves({**curves, **_tail_curves(self._model, spec, topology.stage, config.time_scale)})
        return gpu

    def new_event(self) -> VirtualEvent:
        """Make an event of this rank's stream."""
        return VirtualEvent(self._stream)

    def iteration_begins(self, iteration: int | None) -> None:
        """Let scheduled throttling and faults begin and end.

        Args:
            iteration: Number of the training iteration; None: an evaluation.
        """
        self._microbatches, self._newest = self._newest + 1, -1
        self._sizes.begin()
        self._reduced = False
        self._posted.clear()
        self._stream.begin_pass(iteration)
        for throttle in self._throttles:
            if iteration == throttle.begin_iteration:
                self.gpu.throttle(throttle.slowdown)
                self.gpu.throttle_to(throttle.ceiling_mhz)
            elif iteration == throttle.end_iteration:
                self.gpu.throttle(1.0)
                self.gpu.throttle_to(None)
        for fault in self._faults:
            if iteration == fault.begin_iteration:
                self.gpu.set_fault(fault.fault)

    def operation_begin(self, operation: Operation) -> None:
        """Enqueue the operation's work on the GPU."""
        kind = operation.kind
        if kind.is_instruction:
            if self._deepspeed and kind.computes_forward:
                self._stream.synchronize()
            self._work(operation)
        elif kind is Kind.EXCHANGE:
            for posted in [self._post(transfer) for transfer in operation.transfers]:
                self._stream.wait(posted, self._tail(kind, self._model.transfer_s))
        elif kind is Kind.POST:
            for transfer in operation.transfers:
                self._posted[transfer].append(self._post(transfer))
        elif kind is Kind.WAIT:
            for transfer in operation.transfers:
                if self._posted[transfer]:
                    exchange = self._tail(Kind.EXCHANGE, self._model.transfer_s)
                    self._stream.wait(self._posted[transfer].popleft(), exchange)
        elif kind is Kind.REDUCE:
            self._reduce()
        elif kind is Kind.OPTIMIZER:
            self._optimizer()

    def operation_end(self, operation: Operation) -> None:
        """Wait where the framework does, or while the launch queue is full."""
        kind = operation.kind
        if kind.is_instruction:
            self._stream.instruction_enqueued()
        elif (self._megatron and kind is Kind.EXCHANGE) or (self._deepspeed and kind is Kind.LOAD):
            self._stream.synchronize()

    def iteration_ends(self) -> None:
        """Run Megatron-Core's optimizer, which follows the schedule, and wait for the GPU."""
        if self._megatron:
            self._optimizer()
        self._stream.synchronize()
        if not self._model.host_lead_s:
            time.sleep(_BETWEEN_ITERATIONS_S)

    def close(self) -> None:
        """Enqueue nothing more, until the next iteration."""
        self._stream.close()

    def _work(self, operation: Operation) -> None:
        """Enqueue an instruction; tensor-parallel ranks end it together."""
        self._newest = max(self._newest, operation.microbatch)
        beside_reduction = (
            self._megatron
            and self._topology.pipelines > 1
            and operation.kind.computes_backward
            and operation.microbatch == self._microbatches - 1
        )
        key = CurveKey.of(Instruction.of(self._topology.stage, operation))
        size = self._sizes.of(operation)
        self._stream.work(key, 1.0 + self._model.reduction_contention * beside_reduction, size)
        if self._topology.shard_size > 1:
            here = (self._topology.pipeline, self._topology.stage)
            self._meet("tensor", (self._index(*here, shard) for shard in range(self._topology.shard_size)))

    def _reduce(self) -> None:
        """Enqueue the gradient reduction of all replicas of the stage. DeepSpeed's parts count once."""
        topology = self._topology
        pipelines = range(topology.pipelines)
        self._meet("reduce", (self._index(other, topology.stage, topology.shard_rank) for other in pipelines))
        if topology.pipelines > 1 and not self._reduced:
            self._reduced = True
            self._tail_work(Kind.REDUCE, self._model.reduce_s)

    def _optimizer(self) -> None:
        self._tail_work(Kind.OPTIMIZER, self._model.optimizer_s)

    def _tail_work(self, kind: Kind, seconds: float) -> None:
        if key := self._tail(kind, seconds):
            self._stream.work(key)

    def _tail(self, kind: Kind, seconds: float) -> CurveKey | None:
        """Return the curve of an operation that is no instruction; None if it takes no time."""
        return CurveKey(self._topology.stage, kind) if seconds else None

    def _post(self, transfer: Transfer) -> tuple[int, int]:
        peer = self._index(self._topology.pipeline, transfer.peer, self._topology.shard_rank)
        return self._stream.post(peer, _label(transfer.tag, transfer.direction is Direction.RECEIVE))

    def _meet(self, tag: str, group: Iterable[int]) -> None:
        """Enqueue a barrier for a group of GPUs."""
        topology = self._topology
        mine = self._index(topology.pipeline, topology.stage, topology.shard_rank)
        for posted in [self._stream.post(peer, _label(tag, mine > peer)) for peer in group if peer != mine]:
            self._stream.wait(posted)

    def _index(self, pipeline: int, stage: int, shard: int) -> int:
        """Return the number of the GPU at a position in the job."""
        return (pipeline * self._topology.stages + stage) * self._topology.shard_size + shard


def _label(tag: str, second: bool) -> int:
    """Return the label of a transfer's content; the two sides' labels differ in the last bit."""
    return (zlib.crc32(tag.encode()) & 0xFFFFF) * 2 + second


def profile_file(name: str) -> Path:
    """Return the file of a shipped profile, or the given path."""
    shipped = _PROFILES / f"{name}.csv"
    return shipped if shipped.exists() else Path(name)


def simulated_profile(config: SimulatorConfig, stages: int, chunks: int = 1) -> Profile:
    """Return the curves of the simulated GPUs: the truth that profiling has to find.

    A stage with several chunks divides its time and energy evenly among them.

    Args:
        config: Names the profile, its stages and the scale.
        stages: Pipeline stages of the job.
        chunks: Model chunks per stage.

    Raises:
        PerseusError: The profile is missing, wrong, or has too few stages.
    """
    source = read_profile(profile_file(config.profile))
    chosen = config.stages or tuple(range(stages))
    if len(chosen) < stages or max(chosen) >= source.stages:
        raise PerseusError("simulator-stages", file=source.source, stages=source.stages, chosen=chosen, needed=stages)
    model, scale = gpu_model(config), config.time_scale / chunks
    highest_mhz = max(point.frequency_mhz for points in source.curves.values() for point in points)
    stretch = (model.top_clock_mhz or highest_mhz) / highest_mhz

    def carried_over(point: ProfilePoint) -> ProfilePoint:
        energy_j = point.energy_j * scale * model.power_scale
        return ProfilePoint(round(point.frequency_mhz * stretch), point.time_s * scale, energy_j)

    return Profile(
        {
            CurveKey(stage, kind, chunk): tuple(map(carried_over, source.curves[CurveKey(chosen[stage], kind)]))
            for stage in range(stages)
            for kind in (Kind.FORWARD, Kind.BACKWARD)
            for chunk in range(chunks)
        },
        source.source,
    )


def _stage_curves(profile: Profile, stage: int) -> dict[CurveKey, tuple[ProfilePoint, ...]]:
    """Return a stage's curves, with those of half and joint instructions.

    Half a backward takes half its time and energy. A joint pass takes the sum of its forward and backward.
    """
    curves = {key: points for key, points in profile.curves.items() if key.stage == stage}
    forwards = {key.chunk: points for key, points in curves.items() if key.kind is Kind.FORWARD}
    backwards = {key.chunk: points for key, points in curves.items() if key.kind is Kind.BACKWARD}
    for chunk, points in backwards.items():
        half = tuple(ProfilePoint(p.frequency_mhz, p.time_s / 2, p.energy_j / 2) for p in points)
        curves[CurveKey(stage, Kind.INPUT_GRADIENT, chunk)] = half
        curves[CurveKey(stage, Kind.WEIGHT_GRADIENT, chunk)] = half
        for forward_chunk, forward in forwards.items():
            curves[CurveKey(stage, Kind.FORWARD_BACKWARD, forward_chunk, chunk)] = tuple(
                ProfilePoint(f.frequency_mhz, f.time_s + b.time_s, f.energy_j + b.energy_j)
                for f, b in zip(forward, points, strict=True)
            )
    return curves


def _tail_curves(
    model: GpuModel, spec: GpuSpec, stage: int, time_scale: float
) -> dict[CurveKey, tuple[ProfilePoint, ...]]:
    """Return the curves of transfer, reduction and optimizer: a share of their time scales with the clock."""
    highest_mhz, curves = spec.clocks_mhz[0], {}
    tails = ((Kind.EXCHANGE, model.transfer_s), (Kind.REDUCE, model.reduce_s), (Kind.OPTIMIZER, model.optimizer_s))
    for kind, seconds in tails:
        if seconds:
            times_s = [
                seconds * time_scale * (1.0 + model.tail_clock_share * (highest_mhz / mhz - 1.0))
                for mhz in spec.clocks_mhz
            ]
            curves[CurveKey(stage, kind)] = tuple(
                ProfilePoint(mhz, time_s, time_s * spec.waiting_power_w(clock))
                for clock, (mhz, time_s) in enumerate(zip(spec.clocks_mhz, times_s, strict=True))
            )
    return curves
