"""The log lines of a job: one voice for all ranks, and each rank's own when debugging."""

from __future__ import annotations

from perseus_ds.config import Config
from perseus_ds.console import ProgressLine, log
from perseus_ds.coordination.events import (
    Event,
    GuardStepped,
    IterationBegan,
    JobEnded,
    ObjectiveChanged,
    PhaseEntered,
    PlanSwitched,
    RanksBack,
    RanksLost,
    RoundHeard,
)
from perseus_ds.coordination.phases import Phase
from perseus_ds.messages import user_message
from perseus_ds.pipeline.events import Topology

__all__ = ["JobLog", "RankLog"]


class RankLog:
    """Debug lines of one rank.

    Args:
        topology: Position of this rank.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def __call__(self, event: Event) -> None:
        """Handle an event."""
        rank = self._topology.rank
        match event:
            case PlanSwitched(iteration, plans):
                mine = plans[self._topology.pipeline]
                log.debug("rank %d: iteration %d: switches to %.6f s", rank, iteration, mine.time_s)
            case GuardStepped(iteration, caution):
                log.debug("rank %d: iteration %d: caution %.2f", rank, iteration, caution)
            case RanksLost(iteration, cause):
                log.debug("rank %d: iteration %d: leaves the others: %s", rank, iteration, cause)
            case RanksBack(iteration):
                log.debug("rank %d: iteration %d: is back", rank, iteration)
            case _:
                pass


class JobLog:
    """The coordinator's log lines, and the progress of the sweep on a terminal.

    Args:
        config: The whole configuration.
    """

    def __init__(self, config: Config) -> None:
        self._every = config.report.log_every
        self._most_swept = config.profiling.max_iterations
        self._simulated = " (simulated GPUs)" if config.simulator else ""
        self._phase: Phase | None = None
        self._progress: ProgressLine | None = None

    def __call__(self, event: Event) -> None:
        """Handle an event."""
        match event:
            case RoundHeard():
                self._round_heard(event)
            case PlanSwitched(iteration, plans):
                times = ", ".join(f"T = {plan.time_s:.3f} s" for plan in plans)
                log.info("iteration %d: all ranks switch to %s", iteration, times)
            case ObjectiveChanged(iteration, objective):
                log.info("iteration %d: objective %s", iteration, objective or "configured")
            case GuardStepped(iteration, caution) if caution > 0.0:
                log.warning("iteration %d: %s", iteration, user_message("guard-step", share=100 * caution))
            case GuardStepped(iteration):
                log.info("iteration %d: %s", iteration, user_message("guard-return"))
            case RanksBack(iteration):
                log.info("iteration %d: all ranks are together again", iteration)
            case PhaseEntered(iteration, phase):
                self._enter(phase, iteration)
            case IterationBegan(phase=Phase.PROFILING) if self._progress is not None:
                self._progress.step()
            case JobEnded():
                self._end_progress()
            case _:
                pass

    def _round_heard(self, event: RoundHeard) -> None:
        iteration = event.round_result.iteration
        if self._every and iteration and iteration % self._every == 0:
            log.info(
                "iteration %d: %s, %.3f s, %.0f J per pipeline%s",
                iteration,
                self._phase.value if self._phase else "",
                event.round_result.iteration_time_s,
                event.round_result.pipeline_energy_j,
                self._simulated,
            )

    def _enter(self, phase: Phase, iteration: int) -> None:
        self._end_progress()
        if phase is Phase.PROFILING:
            self._progress = ProgressLine("profiling", self._most_swept)
        self._phase = phase
        log.info("iteration %d: %s%s", iteration, phase.value, self._simulated)

    def _end_progress(self) -> None:
        if self._progress is not None:
            self._progress.close()
            self._progress = None
