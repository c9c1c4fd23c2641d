"""The coordinator's record of the job: the files of the run directory and the final table."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from math import ceil
from typing import Any

import numpy as np

from perseus_ds.config import Config
from perseus_ds.console import log
from perseus_ds.coordination.ageing import ageing
from perseus_ds.coordination.events import (
    BaselineRefreshed,
    CheckpointSaved,
    DriftFound,
    EndedForGood,
    Event,
    GuardStepped,
    IterationBegan,
    JobEnded,
    ObjectiveChanged,
    OrderPlaced,
    OrderSent,
    PhaseEntered,
    PlansAdopted,
    PlanSwitched,
    RanksBack,
    RanksLost,
    RoundHeard,
    StragglerChanged,
    StragglerPlansAdopted,
)
from perseus_ds.coordination.phases import Phase
from perseus_ds.coordination.plan_table import PlanTable, is_slow
from perseus_ds.coordination.resume import copy_resume_data
from perseus_ds.frontier.power_objectives import JobPower, PowerCap
from perseus_ds.messages import one_line, user_message
from perseus_ds.pipeline.events import Topology
from perseus_ds.report.closing import closing_table, ended_early
from perseus_ds.report.power_rows import PowerOrder, power_rows
from perseus_ds.report.provenance import software_versions
from perseus_ds.report.run_stats import Measurement, RunStats
from perseus_ds.report.savings import Savings
from perseus_ds.report.straggler_records import described
from perseus_ds.rundir import RunDirectory

__all__ = ["RunRecorder"]

_PAUSE_S = 0.002  # between two summaries, per iteration in them: a hundred times of what one takes


class RunRecorder:
    """The coordinator's record of the job.

    Args:
        config: The whole configuration.
        topology: The coordinator's.
        directory: The run directory.
        gpu: Description of the coordinator's GPU, for the report.
        baseline: ``baseline`` in the ``summary.json`` of an earlier run that this one resumes.
    """

    def __init__(
        self,
        config: Config,
        topology: Topology,
        directory: RunDirectory,
        gpu: Mapping[str, Any],
        baseline: Mapping[str, float] | None = None,
    ) -> None:
        self._config = config
        self._topology = topology
        self._simulated = config.simulator is not None
        self._stats = RunStats()
        if baseline is not None:
            self._stats.earlier_baseline = Measurement(baseline["iteration_time_s"], baseline["energy_j"])
        self._phase: Phase | None = None
        self._table: PlanTable | None = None
        self._power: list[PowerOrder] = []
        self._settled = 0  # the first iteration whose energy the counter shows without that of other plans
        self._savings = Savings()
        self._slow = self._cautious = self._in_vain = False
        self._sent: OrderSent | None = None
        self._microbatches = self._keeperless = 0
        self._waited_s = self._trained_s = self._counter_lag_s = self._next_summary_s = 0.0
        self._handlers: dict[type, Callable[[Any], None]] = {
            RoundHeard: self._round_heard,
            BaselineRefreshed: self._baseline_refreshed,
            OrderPlaced: self._order_placed,
            OrderSent: self._order_sent,
            ObjectiveChanged: self._objective_changed,
            PlansAdopted: self._plans_adopted,
            StragglerPlansAdopted: self._straggler_plans_adopted,
            StragglerChanged: self._straggler_changed,
            DriftFound: self._drift_found,
            GuardStepped: self._guard_stepped,
            PlanSwitched: self._plan_switched,
            PhaseEntered: self._phase_entered,
            IterationBegan: self._iteration_began,
            RanksLost: self._ranks_lost,
            RanksBack: self._ranks_back,
            EndedForGood: self._ended_for_good,
            CheckpointSaved: self._checkpoint_saved,
            JobEnded: self._job_ended,
        }
        self.directory = directory
        directory.write_json(
            "config.json",
            {"config": config.model_dump(mode="json"), "versions": software_versions(), "gpu": dict(gpu)},
        )
        self._event("start", 0, framework=topology.framework, **self._about())

    def __call__(self, event: Event) -> None:
        """Handle an event."""
        if (handler := self._handlers.get(type(event))) is not None:
            handler(event)

    def _round_heard(self, event: RoundHeard) -> None:
        heard = event.round_result
        iteration = heard.iteration
        per_pipeline = 1 / self._topology.pipelines
        switches = float(heard.field("switches").sum()) * per_pipeline
        late_switches = float(heard.field("late_switches").sum())
        share_at_clock = float(heard.field("share_at_clock").min())
        self._stats.measured(iteration, heard.iteration_time_s, switches, late_switches, share_at_clock)
        self._stats.energy(iteration - 1, heard.pipeline_energy_j)
        self._waited_s += float(heard.field("waited_s").max())
        self._trained_s += heard.iteration_time_s
        if (keeperless := int(heard.field("keeperless").sum())) != self._keeperless:
            self._keeperless = keeperless
            self._event("keepers", iteration, missing=keeperless)
        every = self._config.report.log_every
        if every and iteration and iteration % every == 0 and time.monotonic() >= self._next_summary_s:
            self._write_summary()

    def _baseline_refreshed(self, event: BaselineRefreshed) -> None:
        if refreshed := self._stats.refreshed(event.iterations, event.energies_j):
            sd_j = event.sd_j / len(event.iterations)
            self._event("baseline", event.iterations.start, **refreshed, energy_sd_j=sd_j)

    def _order_placed(self, event: OrderPlaced) -> None:
        order = event.order
        if order.kind != "objective":  # which has an event of its own
            self._event("order", event.iteration, order=order.kind, subject=order.subject, value=order.value)

    def _order_sent(self, event: OrderSent) -> None:
        self._sent = event

    def _objective_changed(self, event: ObjectiveChanged) -> None:
        """Acknowledge: who, from which iteration on, and what it costs."""
        sent = self._sent if self._sent is not None and self._sent.order == event.order else None
        if sent is not None and event.expected is not None:  # there are plans: this is the answer
            self._sent = None  # another rank's order may equal it later
        before, after = event.expected or (None, None)
        answered = event.iteration - sent.iteration + 1 if sent else None  # read while the iteration before it ran
        at_floor = after and not after.met and isinstance(event.objective, PowerCap)
        if after is not None:
            self._stats.replanned(1.0, 1.0)
            power_w = event.objective.power_cap_w if isinstance(event.objective, JobPower) else None
            self._power.append(PowerOrder(event.iteration, power_w, answered, bool(at_floor)))
        self._event(
            "objective",
            event.iteration,
            objective=str(event.objective) if event.objective else "configured",
            by=sent.order.by if sent else "the program",
            answered_iterations=answered,
            before_s=before and before.time_s,
            time_s=after and after.time_s,
            power_w=after and after.power_w,
            met=after and after.met,
            at_floor=at_floor,
        )

    def _plans_adopted(self, event: PlansAdopted) -> None:
        table, before = event.table, event.replaced
        if before is not None:
            self._stats.replanned(table.baseline_s / before.baseline_s, table.max_energy_j / before.max_energy_j)
        if table.baseline_energies_j:
            self._stats.take_baseline(table.baseline_energies_j)
        self._counter_lag_s = table.counter_lag_s
        self._table, self._microbatches, self._cautious = table, table.microbatches, False
        plans = table.choose(np.ones((self._topology.pipelines, self._topology.stages)))
        base = table.groups[0].base
        ages = cache(partial(ageing, table, plans))  # every summary asks; the answer changes with a refresh only
        self._stats.plan(Measurement(*table.predicted(plans)), Measurement(*table.highest), ages)
        self.directory.write_json("plan.json", plans[0].to_json())
        self._event("plans", event.iteration, version=table.version, t_min_s=base.t_min_s, t_star_s=base.t_star_s)

    def _straggler_plans_adopted(self, event: StragglerPlansAdopted) -> None:
        for (_, slowdowns), found in event.straggler_plans.plan_sets.items():
            kind = "straggler_plans" if is_slow(slowdowns) else "one_more_plan"
            times = {"t_min_s": found.t_min_s, "t_star_s": found.t_star_s}
            self._event(kind, event.iteration, slowdowns=[*map(described, slowdowns)], **times)

    def _straggler_changed(self, event: StragglerChanged) -> None:
        begun, ended = self._stats.straggler_changed(event, self._config.straggler.recovery_iterations)
        self._slow = is_slow(sum(event.slowdowns, ()))
        for record in begun:
            self._event("straggler", event.iteration, **record.given())
        for record in ended:
            self._event("recovered", event.iteration, pipeline=record.pipeline, stage=record.stage)

    def _drift_found(self, event: DriftFound) -> None:
        self._event("drift", event.iteration, factors=[round(factor, 4) for factor in event.factors])

    def _guard_stepped(self, event: GuardStepped) -> None:
        self._cautious = event.caution > 0.0
        self._event("guard", event.iteration, caution=event.caution)

    def _plan_switched(self, event: PlanSwitched) -> None:
        self._stats.stragglers.switched(event)
        plans = [{"time_s": plan.time_s, "energy_j": plan.energy_j} for plan in event.plans]
        self._settled = event.iteration + max(1, ceil(self._counter_lag_s / max(plan.time_s for plan in event.plans)))
        self._event("switch", event.iteration, plans=plans)

    def _phase_entered(self, event: PhaseEntered) -> None:
        self._event("phase", event.iteration, phase=event.phase.value)

    def _iteration_began(self, event: IterationBegan) -> None:
        as_before = self._phase is event.phase and event.iteration >= self._settled
        healthy = not self._slow and not self._cautious
        planned = event.planned and healthy and event.phase is Phase.ENFORCING
        steady = planned and as_before if event.phase is Phase.ENFORCING else healthy
        predicted = self._table.predicted(event.plans) if planned and self._table else None
        self._stats.begin(event.iteration, event.phase, steady, predicted)
        self._phase = event.phase

    def _ranks_lost(self, event: RanksLost) -> None:
        self._event("paused", event.iteration, cause=event.cause)

    def _ranks_back(self, event: RanksBack) -> None:
        self._event("rejoined", event.iteration)

    def _ended_for_good(self, event: EndedForGood) -> None:
        self._event("ended_for_good", event.iteration, cause=event.cause)

    def _checkpoint_saved(self, event: CheckpointSaved) -> None:
        """Copy the data for a later run, as soon as they are written."""
        self._write_summary()
        self.directory.later(partial(copy_resume_data, self.directory.path, event.folder))

    def _job_ended(self, event: JobEnded) -> None:
        """Write the summary and print the final table."""
        waited = self._waited_s / self._trained_s if self._trained_s else 0.0
        last, phase = max(self._stats.last_iteration, 0), event.phase
        self._event("end", last, phase=phase.value, bus_wait_share=waited, clocks=dict(event.clocks))
        summary = self._write_summary()
        written = self.directory.flush()
        if self.directory.failure is not None:
            log.warning("%s: cannot write: %s", self.directory.path, self.directory.failure)
        print(closing_table(summary), file=sys.stderr, flush=True)
        if message := ended_early(phase, self._stats, self._config):
            log.warning("%s", message)
        if written and self._config.report.html:
            self._write_report()

    def _event(self, kind: str, iteration: int, **values: Any) -> None:
        self.directory.event(kind, iteration, **values)
        if (point := self._savings.take({"event": kind, "iteration": iteration, **values})) is not None:
            if point.in_vain and not self._in_vain:
                log.warning("%s", user_message("saves-nothing", percent=f"{100.0 * point.saving:.1f}"))
            self._in_vain = point.in_vain

    def _about(self) -> dict[str, Any]:
        return {
            "simulated": self._simulated,
            "stages": self._topology.stages,
            "microbatches": self._microbatches,
            "pipelines": self._topology.pipelines,
        }

    def _write_report(self) -> None:
        """Write ``report.html``; if that fails, the data remain for another try."""
        from perseus_ds.report.page import write_report

        try:
            log.info("report: %s", write_report(self.directory.path))
        except Exception as error:
            detail = one_line(error)
            log.warning(user_message("report-not-written", path=self.directory.path, detail=detail))

    def _write_summary(self) -> dict[str, Any]:
        summary = self._stats.summary(framework=self._topology.framework, **self._about())
        series = self._stats.series()
        caps = self._table.uniform_caps if self._table else ()
        if rows := power_rows(self._power, series, self._topology.pipelines, self._stats.baseline, caps):
            summary["power"] = rows
        self.directory.write_json("summary.json", summary)
        self.directory.write_json("iterations.json", series)
        self._next_summary_s = time.monotonic() + _PAUSE_S * len(series)
        return summary
