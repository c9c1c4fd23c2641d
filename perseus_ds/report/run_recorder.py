"""What the coordinator tells: log lines, the run directory's files, the closing table."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from perseus_ds.config import Config
from perseus_ds.console import ProgressLine, log
from perseus_ds.coordination.plan_table import FrequencyPlan, PlanTable, StragglerPlans
from perseus_ds.coordination.resume import copy_resume_data
from perseus_ds.coordination.rounds import RoundResult
from perseus_ds.messages import one_line, user_message
from perseus_ds.pipeline.events import Topology
from perseus_ds.report.closing import closing_table
from perseus_ds.report.provenance import software_versions
from perseus_ds.report.run_stats import Measurement, Phase, RunStats, StragglerRecord
from perseus_ds.rundir import RunDirectory

__all__ = ["RunRecorder"]


class RunRecorder:
    """The coordinator's record of the job.

    Args:
        config: The whole configuration.
        topology: The coordinator's.
        directory: Where to write.
        gpu: What is known of the coordinator's GPU, for the report.
    """

    def __init__(
        self,
        config: Config,
        topology: Topology,
        directory: RunDirectory,
        gpu: Mapping[str, Any],
    ) -> None:
        self._config = config
        self._topology = topology
        self._simulated = config.simulator is not None
        self._stats = RunStats()
        self._phase: Phase | None = None
        self._plans: tuple[FrequencyPlan, ...] = ()
        self._slow = self._cautious = False
        self._book: PlanTable | None = None
        self._progress: ProgressLine | None = None
        self._waited_s = self._trained_s = 0.0
        self.directory = directory
        directory.write_json(
            "config.json",
            {"config": config.model_dump(mode="json"), "versions": software_versions(), "gpu": dict(gpu)},
        )
        self._event("start", 0, framework=topology.framework, **self._about())

    def resumes(self, baseline: Mapping[str, float]) -> None:
        """The job goes on with an earlier run's plans.

        Args:
            baseline: ``baseline`` of its ``summary.json``.
        """
        self._stats.earlier_baseline = Measurement(baseline["iteration_time_s"], baseline["energy_j"])
        log.info("going on with the profile and plans of an earlier run in %s", self.directory.path)

    def iteration(self, iteration: int, phase: Phase, plans: tuple[FrequencyPlan, ...], microbatches: int) -> None:
        """An iteration begins."""
        planned = self._book is not None and self._book.microbatches == microbatches
        as_before = self._phase is phase and plans is self._plans
        healthy = not self._slow and not self._cautious
        self._stats.begin(iteration, phase, phase is not Phase.ENFORCING or (planned and healthy and as_before))
        if phase is not self._phase:
            self._enter(phase, iteration)
        if phase is Phase.PROFILING and self._progress is not None:
            self._progress.step()
        self._phase, self._plans = phase, plans

    def round_result(self, round_result: RoundResult) -> None:
        """All ranks have spoken about an iteration."""
        iteration = round_result.iteration
        per_pipeline = 1 / self._topology.pipelines
        switches = float(round_result.field("switches").sum()) * per_pipeline
        self._stats.measured(
            iteration, round_result.iteration_time_s, switches, float(round_result.field("late_switches").sum())
        )
        self._stats.energy(iteration - 1, round_result.pipeline_energy_j)
        self._waited_s += float(round_result.field("waited_s").max())
        self._trained_s += round_result.iteration_time_s
        every = self._config.report.log_every
        if every and iteration and iteration % every == 0:
            log.info(
                "iteration %d: %s, %.3f s, %.0f J per pipeline%s",
                iteration,
                self._phase.value if self._phase else "",
                round_result.iteration_time_s,
                round_result.pipeline_energy_j,
                " (simulated GPUs)" if self._simulated else "",
            )
            self._write_summary()

    def table(self, table: PlanTable, iteration: int) -> None:
        """A plan table comes into force."""
        if self._book is not None:
            time_ratio = table.baseline_s / self._book.baseline_s
            self._stats.replanned(time_ratio, table.max_energy_j / self._book.max_energy_j)
        self._book, self._cautious = table, False
        plans = table.choose(np.ones((self._topology.pipelines, self._topology.stages)))
        energy_j, base = table.energy_j(plans), table.peers[0].base
        self._stats.predicted = Measurement(max(plan.time_s for plan in plans), energy_j)
        self._stats.predicted_saving = 1.0 - energy_j / table.max_energy_j
        self.directory.write_json("plan.json", plans[0].to_json())
        self._event("plans", iteration, version=table.version, t_min_s=base.t_min_s, t_star_s=base.t_star_s)

    def straggler_plans(self, straggler_plans: StragglerPlans, iteration: int) -> None:
        """Frontiers for slowed pipelines come into force."""
        for (_, condition), route in straggler_plans.routes.items():
            self._event(
                "straggler_plans", iteration, slowdowns=condition, t_min_s=route.t_min_s, t_star_s=route.t_star_s
            )

    def drift(self, drift: np.ndarray, iteration: int) -> None:
        """The profile no longer fits: by these factors per stage."""
        self._event("drift", iteration, factors=np.round(drift, 4).tolist())

    def guard(self, caution: float, iteration: int) -> None:
        """The throughput guard has taken a step."""
        self._cautious = caution > 0.0
        self._event("guard", iteration, caution=caution)
        if caution > 0.0:
            log.warning("iteration %d: %s", iteration, user_message("guard-step", share=100 * caution))
        else:
            log.info("iteration %d: %s", iteration, user_message("guard-return"))

    def condition(
        self, table: PlanTable, slowdowns: np.ndarray, lasted: np.ndarray, seen_iteration: int, iteration: int
    ) -> None:
        """A stage has become slow, or normal again.

        Args:
            table: The one in force.
            slowdowns: Array (pipelines, stages).
            lasted: Array (pipelines, stages): for how many iterations each had been slow when it was noticed.
            seen_iteration: The last iteration that was looked at.
            iteration: The one that is about to begin.
        """
        self._slow = bool((slowdowns > 1.0).any())
        for pipeline, stage in np.argwhere(slowdowns > 1.0).tolist():
            if self._open(pipeline, stage) is None:
                onset = max(seen_iteration - int(lasted[pipeline, stage]) + 1, 0)
                record = StragglerRecord(pipeline, stage, float(slowdowns[pipeline, stage]), onset)
                record.t_prime_s = table.t_prime_s(slowdowns)
                self._stats.stragglers.append(record)
                self._event("straggler", iteration, **_given(record))
        for record in self._stats.stragglers:
            if record.recovered_iteration is None and slowdowns[record.pipeline, record.stage] == 1.0:
                record.recovered_iteration = max(seen_iteration - self._config.straggler.recovery_iterations + 1, 0)
                self._event("recovered", iteration, pipeline=record.pipeline, stage=record.stage)

    def switched(self, chosen: tuple[FrequencyPlan, ...], iteration: int) -> None:
        """Plans, one per pipeline, have changed, on all ranks, at this iteration."""
        for record in self._stats.stragglers:
            if record.recovered_iteration is not None and record.returned_iteration is None:
                record.returned_iteration = iteration
            elif record.recovered_iteration is None and record.switched_iteration is None:
                record.switched_iteration = iteration
                record.t_opt_s = max(point.time_s for point in chosen)
        self._event("switch", iteration, plans=[{"time_s": p.time_s, "energy_j": p.energy_j} for p in chosen])
        log.info(
            "iteration %d: all ranks switch to %s",
            iteration,
            ", ".join(f"T = {p.time_s:.3f} s" for p in chosen),
        )

    def save(self, folder: Path) -> None:
        """Copy what a later run resumes from into a checkpoint's folder, as soon as it is written."""
        self._write_summary()
        self.directory.later(partial(copy_resume_data, self.directory.path, folder))

    def close(self, phase: Phase, clocks: dict[str, Any]) -> None:
        """The job is over: write the summary and print the closing table.

        Args:
            phase: The last one.
            clocks: How the coordinator's GPU followed its clock requests.
        """
        if self._progress is not None:
            self._progress.close()
        waited = self._waited_s / self._trained_s if self._trained_s else 0.0
        self._event("end", max(self._stats.last_iteration, 0), phase=phase.value, bus_wait_share=waited, clocks=clocks)
        summary = self._write_summary()
        written = self.directory.flush()
        if self.directory.failure is not None:
            log.warning("%s: could not be written: %s", self.directory.path, self.directory.failure)
        print(closing_table(summary), file=sys.stderr, flush=True)
        if self._ended_early(phase):
            log.warning("%s", user_message("ended-early", phase=phase.value, iterations=self._iterations_to_plan()))
        if written and self._config.report.html:
            self._write_report()

    def _iterations_to_plan(self) -> int:
        """Return how many iterations come before solving, at most."""
        one = self._config
        return one.warmup_iterations + one.baseline_iterations + one.profiling.max_iterations

    def _ended_early(self, phase: Phase) -> bool:
        """Whether more iterations would have brought a plan; where no clock is set the baseline goes on for ever."""
        if phase in (Phase.WARMUP, Phase.BASELINE):
            before_profiling = self._config.warmup_iterations + self._config.baseline_iterations
            return self._stats.last_iteration < before_profiling
        return phase in (Phase.PROFILING, Phase.SOLVING)

    def _enter(self, phase: Phase, iteration: int) -> None:
        if self._progress is not None:
            self._progress.close()
            self._progress = None
        if phase is Phase.PROFILING:
            self._progress = ProgressLine("profiling", self._config.profiling.max_iterations)
        self._event("phase", iteration, phase=phase.value)
        log.info("iteration %d: %s%s", iteration, phase.value, " (simulated GPUs)" if self._simulated else "")

    def _open(self, pipeline: int, stage: int) -> StragglerRecord | None:
        for record in self._stats.stragglers:
            if (record.pipeline, record.stage) == (pipeline, stage) and record.recovered_iteration is None:
                return record
        return None

    def _event(self, kind: str, iteration: int, **values: Any) -> None:
        self.directory.event(kind, iteration, **values)

    def _about(self) -> dict[str, Any]:
        return {
            "simulated": self._simulated,
            "stages": self._topology.stages,
            "microbatches": self._book.microbatches if self._book else 0,
            "pipelines": self._topology.pipelines,
        }

    def _write_report(self) -> None:
        """Write ``report.html``; whatever goes wrong with it, the run's data are there to make it again."""
        from perseus_ds.report.page import write_report

        try:
            log.info("report: %s", write_report(self.directory.path))
        except Exception as error:
            detail = one_line(error)
            log.warning(user_message("report-not-written", path=self.directory.path, detail=detail))

    def _write_summary(self) -> dict[str, Any]:
        summary = self._stats.summary(framework=self._topology.framework, **self._about())
        self.directory.write_json("summary.json", summary)
        self.directory.write_json("iterations.json", self._stats.series())
        return summary


def _given(record: StragglerRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if value is not None}
