"""The simulated GPUs of a job: what they are, what they run, and what happens to them."""

from __future__ import annotations

import os
from pathlib import Path

from perseus_ds.config import SimulatorConfig
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.events import Operation, Topology
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint, read_profile
from perseus_ds.simulator.driver import SIMULATOR_VARIABLE
from perseus_ds.simulator.gpu import GpuSpec, VirtualGpu, create_gpu
from perseus_ds.simulator.state import state_path
from perseus_ds.simulator.workload import SimulatedWorkload

__all__ = ["Simulation", "profile_file", "simulated_profile"]

_PROFILES = Path(__file__).parents[1] / "simulator" / "profiles"


class Simulation:
    """One rank's virtual GPU and what is to happen to it.

    Args:
        config: What is simulated.
        run_dir: The GPUs' states are kept in its folder ``gpus``.
        topology: Where this rank stands.

    Attributes:
        workload: Makes instructions last as long as they would on the GPU.

    Raises:
        PerseusError: The profile is missing, wrong, or has too few stages.
    """

    def __init__(self, config: SimulatorConfig, run_dir: Path, topology: Topology) -> None:
        directory = (run_dir / "gpus").absolute()
        directory.mkdir(parents=True, exist_ok=True)
        path = state_path(directory, topology.rank)
        path.unlink(missing_ok=True)
        if config.pipeline_profiles:
            config = config.model_copy(update={"profile": config.pipeline_profiles[topology.pipeline]})
        profile = simulated_profile(config, topology.stages, topology.chunks)
        create_gpu(
            path,
            GpuSpec(
                sorted({point.frequency_mhz for points in profile.curves.values() for point in points}),
                name=f"Simulated GPU ({Path(config.profile).stem})",
                blocking_power_w=config.blocking_power_w,
                switch_latency_s=config.switch_latency_s,
                counter_period_s=config.counter_period_s,
                sampling_duty=config.sampling_duty,
                noise=config.noise,
                seed=config.seed + topology.rank,
            ),
            topology.rank,
        )
        os.environ[SIMULATOR_VARIABLE] = str(directory)
        gpu = VirtualGpu(path)
        gpu.load_curves(_stage_curves(profile, topology.stage))
        self._stage = topology.stage
        here = (topology.pipeline, topology.stage)
        self._throttles = [t for t in config.throttle if (t.pipeline, t.stage) == here]
        self._faults = [f for f in config.faults if (f.pipeline, f.stage) == here]
        self.workload = SimulatedWorkload(gpu)
        for fault in self._faults:
            if fault.begin_iteration == 0:
                gpu.set_fault(fault.fault)

    def iteration_begins(self, iteration: int) -> None:
        """Let throttling and faults begin and end."""
        for throttle in self._throttles:
            if iteration == throttle.begin_iteration:
                self.workload.gpu.throttle(throttle.slowdown)
            elif iteration == throttle.end_iteration:
                self.workload.gpu.throttle(1.0)
        for fault in self._faults:
            if iteration == fault.begin_iteration:
                self.workload.gpu.set_fault(fault.fault)

    def begin(self, operation: Operation) -> None:
        """An instruction starts."""
        self.workload.begin(CurveKey.of(Instruction.of(self._stage, operation)))


def profile_file(name: str) -> Path:
    """Return the file of a shipped profile's name, or the path that the name is."""
    shipped = _PROFILES / f"{name}.csv"
    return shipped if shipped.exists() else Path(name)


def simulated_profile(config: SimulatorConfig, stages: int, chunks: int = 1) -> Profile:
    """Return the curves of the simulated GPUs: the truth that profiling has to find.

    A stage of several chunks shares its curve's time and energy out evenly among them.

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
    scale = config.time_scale / chunks
    return Profile(
        {
            CurveKey(stage, kind, chunk): tuple(
                ProfilePoint(point.frequency_mhz, point.time_s * scale, point.energy_j * scale)
                for point in source.curves[CurveKey(chosen[stage], kind)]
            )
            for stage in range(stages)
            for kind in (Kind.FORWARD, Kind.BACKWARD)
            for chunk in range(chunks)
        },
        source.source,
    )


def _stage_curves(profile: Profile, stage: int) -> dict[CurveKey, tuple[ProfilePoint, ...]]:
    """Return a stage's curves with those of half and joint instructions.

    Half a backward takes half its time and energy; a joint pass takes what its forward and backward take together.
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
