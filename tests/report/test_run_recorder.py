"""The run directory after a history of events: what a person, a monitor and a later run read there."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from made_up_plans import MICROBATCHES, STAGES, first_table, route_of

from perseus_ds.config import Config
from perseus_ds.coordination.events import (
    BaselineRefreshed,
    CheckpointSaved,
    DriftFound,
    EndedForGood,
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
from perseus_ds.coordination.job_curve import JobTarget
from perseus_ds.coordination.orders import Order, objective_order
from perseus_ds.coordination.phases import Phase
from perseus_ds.coordination.plan_table import StragglerPlans
from perseus_ds.coordination.rounds import RankStatus, RoundResult, condense
from perseus_ds.frontier.power_objectives import JobPower
from perseus_ds.pipeline.events import Topology
from perseus_ds.report import run_recorder
from perseus_ds.report.run_recorder import RunRecorder
from perseus_ds.report.rundata import read_events
from perseus_ds.rundir import RunDirectory

TABLE = first_table(2)
PLANS = (TABLE.groups[0].base.points[0],) * 2
HEALTHY, SLOW = ((1.0, 1.0), (1.0, 1.0)), ((1.0, 1.0), (1.3, 1.0))
ROWS = [{"iteration": 0, "iteration_time_s": None, "energy_j": None}] * 1000
NOBODY, TWO = ((0, 0), (0, 0)), ((0, 0), (2, 0))


class Run:
    """A recorder and the directory that it writes to."""

    def __init__(self, tmp_path, **settings) -> None:
        self.directory = RunDirectory(tmp_path / "run")
        config = Config(run_dir=tmp_path / "run", report={"html": False, "log_every": 0}, **settings)
        topology = Topology(0, 4, 0, 2, 0, STAGES, framework="made up 1")
        self.recorder = RunRecorder(config, topology, self.directory, {"name": "a GPU"})

    def hears(self, *events) -> "Run":
        for event in events:
            self.recorder(event)
        return self

    def trains(self, first: int, last: int, phase: Phase, time_s: float, energy_j: float, plans=PLANS) -> None:
        """Iterations one after the other; energies are known one round later."""
        for iteration in range(first, last + 1):
            self.hears(IterationBegan(iteration, phase, phase is Phase.ENFORCING, plans))
            self.hears(heard(iteration, time_s, energy_j))

    def ends(self, phase: Phase = Phase.ENFORCING) -> dict:
        self.hears(JobEnded(phase, {"requests": 5}))
        return self.read("summary.json")

    def events(self, kind: str) -> list[dict]:
        assert self.directory.flush()
        told = [event for event in read_events(self.directory.path) if event["event"] == kind]
        return [{name: value for name, value in event.items() if name not in ("time", "event")} for event in told]

    def read(self, name: str):
        assert self.directory.flush()
        return json.loads((self.directory.path / name).read_text())


def heard(iteration: int, time_s: float, energy_j: float, **status: float) -> RoundHeard:
    rank = RankStatus(iteration, time_s, energy_j / STAGES, switches=3.0, **status).row()
    rows = np.array([condense(np.array([rank] * STAGES), STAGES)] * 2)
    return RoundHeard(iteration + 2, RoundResult(rows, STAGES), PLANS, TABLE.max_time_s)


def test_saving_and_slowdown_are_of_enforced_over_baseline_iterations(tmp_path, capsys):
    run = Run(tmp_path)
    run.trains(0, 2, Phase.WARMUP, 9.0, 9000.0)
    run.trains(3, 9, Phase.BASELINE, 1.0, 1000.0)
    run.hears(PlansAdopted(10, TABLE, None))
    run.trains(10, 19, Phase.ENFORCING, 1.02, 850.0)
    summary = run.ends()
    assert summary["baseline"]["energy_j"] == 1000.0
    assert summary["saving"] == pytest.approx(0.15)
    assert summary["slowdown"] == pytest.approx(0.02)
    assert summary["microbatches"] == MICROBATCHES
    assert (summary["pipelines"], summary["stages"]) == (2, STAGES)
    assert summary["switches_per_iteration"] == 3.0 * STAGES
    assert summary["predicted"]["iteration_time_s"] == pytest.approx(PLANS[0].time_s)
    assert "+15.00 %" in capsys.readouterr().err
    assert run.read("plan.json")["time_s"] == pytest.approx(PLANS[0].time_s)
    assert run.read("config.json")["gpu"] == {"name": "a GPU"}


def test_the_baseline_s_energies_are_replaced_by_those_with_what_the_counter_has_missed(tmp_path):
    run = Run(tmp_path)
    run.trains(0, 9, Phase.BASELINE, 1.0, 950.0)
    run.hears(PlansAdopted(10, replace(TABLE, baseline_energies_j=dict.fromkeys(range(5, 10), 1000.0)), None))
    run.trains(10, 19, Phase.ENFORCING, 1.0, 850.0)
    assert run.ends()["saving"] == pytest.approx(0.15)
    counted = [row["iteration"] for row in run.read("iterations.json") if row["steady"]]
    assert counted[:5] == [5, 6, 7, 8, 9], "no others count as baseline"


def test_iterations_count_once_the_counter_shows_the_plan_alone(tmp_path):
    run = Run(tmp_path)
    run.trains(0, 9, Phase.BASELINE, 1.0, 1000.0)
    run.hears(PlansAdopted(10, replace(TABLE, counter_lag_s=2.5 * PLANS[0].time_s), None), PlanSwitched(10, PLANS))
    run.trains(10, 12, Phase.ENFORCING, 1.0, 960.0)
    run.trains(13, 19, Phase.ENFORCING, 1.0, 850.0)
    run.ends()
    counted = [row["iteration"] for row in run.read("iterations.json") if row["steady"]]
    assert counted == [*range(10), *range(13, 20)]


def test_iterations_that_are_not_as_those_before_do_not_count_as_measured(tmp_path):
    run = Run(tmp_path)
    run.hears(PlansAdopted(0, TABLE, None))
    run.trains(0, 3, Phase.ENFORCING, 1.0, 900.0)
    run.hears(StragglerChanged(4, 2, SLOW, TWO, 1.3))
    run.trains(4, 5, Phase.ENFORCING, 1.3, 900.0)
    run.hears(StragglerChanged(6, 5, HEALTHY, NOBODY, 1.0), GuardStepped(6, 0.5))
    run.trains(6, 7, Phase.ENFORCING, 1.0, 990.0)
    run.hears(GuardStepped(8, 0.0))
    run.trains(8, 9, Phase.ENFORCING, 1.0, 900.0)
    slower = (route_of((1.0, 1.0)).points[1],) * 2
    run.hears(PlanSwitched(10, slower))
    run.trains(10, 11, Phase.ENFORCING, 1.0, 900.0, plans=slower)
    run.hears(IterationBegan(12, Phase.ENFORCING, False, PLANS))
    assert run.directory.flush()
    run.ends()
    steady = {row["iteration"]: row["steady"] for row in run.read("iterations.json")}
    # The straggler was slow from iteration 1 on.
    assert [iteration for iteration, one in steady.items() if not one] == [*range(8), 10, 12]


def test_a_straggler_s_record_goes_from_its_onset_to_everybody_s_return(tmp_path):
    run = Run(tmp_path)
    slower, back = (route_of((1.0, 1.0)).points[2],) * 2, PLANS
    run.hears(
        PlansAdopted(5, TABLE, None),
        StragglerChanged(13, 11, SLOW, TWO, 1.4),
        PlanSwitched(13, slower),
        StragglerPlansAdopted(15, StragglerPlans(2, {(0, (1.3, 1.0)): route_of((1.3, 1.0))})),
        PlanSwitched(15, (slower[0], route_of((1.3, 1.0)).points[0])),
        StragglerChanged(22, 20, HEALTHY, TWO, 1.0),
        PlanSwitched(22, back),
    )
    (record,) = run.ends()["stragglers"]
    assert record == {
        "pipeline": 1,
        "stage": 0,
        "slowdown": 1.3,
        "onset_iteration": 10,
        "ceiling_mhz": None,
        "switched_iteration": 13,
        "t_prime_s": 1.4,
        "t_opt_s": slower[0].time_s,
        "recovered_iteration": 20,
        "returned_iteration": 22,
    }
    (told,) = run.events("straggler")
    assert told == {
        "iteration": 13,
        "pipeline": 1,
        "stage": 0,
        "slowdown": 1.3,
        "onset_iteration": 10,
        "t_prime_s": 1.4,
    }
    assert run.events("recovered") == [{"iteration": 22, "pipeline": 1, "stage": 0}]
    assert [event["iteration"] for event in run.events("switch")] == [13, 15, 22]
    assert run.events("straggler_plans")[0]["slowdowns"] == [1.3, 1.0]


def test_a_straggler_that_lasts_is_one_record_and_a_relapse_another(tmp_path):
    run = Run(tmp_path).hears(
        StragglerChanged(13, 11, SLOW, TWO, 1.4),
        StragglerChanged(16, 14, ((1.0, 1.1), (1.2, 1.0)), TWO, 1.3),
        StragglerChanged(20, 18, HEALTHY, TWO, 1.0),
        StragglerChanged(30, 28, SLOW, TWO, 1.4),
    )
    records = run.ends()["stragglers"]
    assert [(record["pipeline"], record["stage"], record["onset_iteration"]) for record in records] == [
        (1, 0, 10),
        (0, 1, 15),
        (1, 0, 27),
    ]
    assert [record["recovered_iteration"] for record in records] == [18, 18, None]


def test_a_new_table_rescales_the_baseline_and_begins_the_measuring_anew(tmp_path):
    run = Run(tmp_path)
    run.trains(0, 5, Phase.BASELINE, 1.0, 1000.0)
    run.hears(PlansAdopted(6, TABLE, None))
    run.trains(6, 9, Phase.ENFORCING, 1.0, 900.0)
    group = replace(TABLE.groups[0], max_energy_j=2.0 * TABLE.groups[0].max_energy_j)
    larger = replace(TABLE, version=2, baseline_s=2.0 * TABLE.baseline_s, microbatches=6, groups=(group,))
    run.hears(PlansAdopted(10, larger, TABLE))
    run.trains(10, 14, Phase.ENFORCING, 2.0, 1700.0)
    summary = run.ends()
    assert summary["microbatches"] == 6
    assert summary["baseline"]["iteration_time_s"] == pytest.approx(2.0)
    assert summary["saving"] == pytest.approx(1.0 - 1700.0 / 2000.0, rel=0.1)
    assert [event["version"] for event in run.events("plans")] == [1, 2]


def test_every_event_has_its_line(tmp_path):
    run = Run(tmp_path).hears(
        OrderPlaced(4, Order("straggler", 1, 1.25)),
        DriftFound(5, (1.00004, 1.2)),
        GuardStepped(6, 0.5),
        PhaseEntered(7, Phase.OBSERVING),
    )
    run.hears(heard(8, 1.0, 10.0, waited_s=0.25))
    run.ends(Phase.OBSERVING)
    assert run.events("order") == [{"iteration": 4, "order": "straggler", "subject": 1, "value": 1.25}]
    assert run.events("drift") == [{"iteration": 5, "factors": [1.0, 1.2]}]
    assert run.events("guard") == [{"iteration": 6, "caution": 0.5}]
    assert run.events("phase") == [{"iteration": 7, "phase": "observing"}]
    (end,) = run.events("end")
    assert end == {"iteration": 0, "phase": "observing", "bus_wait_share": 0.25, "clocks": {"requests": 5}}


@pytest.mark.parametrize(
    ("phase", "last", "early"),
    [
        (Phase.WARMUP, 1, True),
        (Phase.BASELINE, 9, True),
        (Phase.BASELINE, 11, False),  # where no clock is set it goes on for ever
        (Phase.PROFILING, 20, True),
        (Phase.SOLVING, 40, True),
        (Phase.ENFORCING, 50, False),
        (Phase.OBSERVING, 50, False),
    ],
)
def test_a_job_that_ends_before_its_first_plan_says_how_long_it_should_have_been(tmp_path, caplog, phase, last, early):
    run = Run(tmp_path, warmup_iterations=3, baseline_iterations=8, profiling={"max_iterations": 40})
    run.hears(IterationBegan(last, phase, False, ()))
    run.ends(phase)
    warned = [record.getMessage() for record in caplog.records if "53" in record.getMessage()]
    assert bool(warned) is early


def test_a_power_that_is_followed_has_an_answer_and_a_row(tmp_path):
    run = Run(tmp_path)
    run.trains(0, 9, Phase.BASELINE, 1.0, 1000.0)
    run.hears(PlansAdopted(10, TABLE, None))
    run.trains(10, 13, Phase.ENFORCING, 1.0, 1000.0)
    order = objective_order(JobPower(100.0), by="me")
    expected = JobTarget(1.0, 2000.0, 2000.0, 1000.0), JobTarget(1.2, 1800.0, 1500.0, 750.0, met=False)
    run.hears(OrderSent(13, order), ObjectiveChanged(14, JobPower(100.0), order, expected))
    run.trains(14, 18, Phase.ENFORCING, 1.2, 900.0)
    (row,) = run.ends()["power"]
    (answer,) = run.events("objective")
    assert (answer["by"], answer["met"], answer["at_floor"], answer["answered_iterations"]) == ("me", False, True, 2)
    assert (row["target_w"], row["at_floor"], row["answered_iterations"]) == (100.0, True, 2)
    assert row["measured_w"] == pytest.approx(2 * 900.0 / 1.2)
    assert row["slowdown"] == pytest.approx(0.2)


def test_an_order_during_profiling_is_still_its_author_s_once_there_are_plans(tmp_path):
    run = Run(tmp_path)
    order = objective_order(JobPower(100.0), by="the site")
    expected = JobTarget(1.0, 2000.0, 2000.0, 1000.0), JobTarget(1.2, 1800.0, 1500.0, 750.0)
    run.hears(OrderSent(3, order), ObjectiveChanged(4, JobPower(100.0), order, None))
    run.hears(PlansAdopted(10, TABLE, None), ObjectiveChanged(10, JobPower(100.0), order, expected))
    run.hears(ObjectiveChanged(20, JobPower(100.0), order, expected))
    assert [event["by"] for event in run.events("objective")] == ["the site", "the site", "the program"]


def test_a_checkpoint_gets_what_a_later_run_resumes_from(tmp_path):
    run = Run(tmp_path)
    run.trains(0, 5, Phase.BASELINE, 1.0, 1000.0)
    (tmp_path / "checkpoint").mkdir()
    run.hears(CheckpointSaved(tmp_path / "checkpoint" / "perseus_ds"))
    assert run.directory.flush()
    left = json.loads((tmp_path / "checkpoint" / "perseus_ds" / "summary.json").read_text())
    assert left["baseline"]["energy_j"] == 1000.0


def test_a_run_that_goes_on_counts_from_the_earlier_baseline(tmp_path):
    config, directory = Config(run_dir=tmp_path, report={"html": False}), RunDirectory(tmp_path)
    earlier = {"iteration_time_s": 1.6, "energy_j": 500.0}
    recorder = RunRecorder(config, Topology(0, 2, 0, 1, 0, 2), directory, {}, earlier)
    recorder(JobEnded(Phase.SOLVING, {}))
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["baseline"]["energy_j"] == 500.0


def test_a_refreshed_baseline_is_told_beside_the_plan_it_interrupts(tmp_path):
    run = Run(tmp_path)
    run.trains(0, 7, Phase.BASELINE, 1.0, 1000.0)
    run.hears(PlansAdopted(8, TABLE, None))
    run.trains(8, 19, Phase.ENFORCING, 1.0, 880.0)
    run.hears(IterationBegan(20, Phase.ENFORCING, False, PLANS), heard(20, 1.0, 900.0))
    run.trains(21, 22, Phase.BASELINE, 0.9, 1000.0)
    run.trains(23, 34, Phase.ENFORCING, 1.0, 880.0)
    corrected_j = {number: 1250.0 if number in (21, 22) else 900.0 for number in range(12, 31)}
    run.hears(BaselineRefreshed(range(21, 23), corrected_j, 5.0))
    run.ends()
    (told,) = run.events("baseline")
    assert told == {
        "iteration": 21,
        "iteration_time_s": 0.9,
        "energy_j": 1250.0,
        "plan_time_s": 1.0,
        "plan_energy_j": 900.0,
        "saving": pytest.approx(0.28),
        "energy_sd_j": 2.5,
    }
    rows = {row["iteration"]: row for row in run.read("iterations.json")}
    assert [rows[number]["steady"] for number in (19, 20, 21, 22, 23, 24)] == [True, False, True, True, False, True]
    assert [rows[number]["energy_j"] for number in (19, 21, 24)] == [900.0, 1250.0, 900.0]


def test_plans_that_save_nothing_are_told_once(tmp_path, caplog):
    run = Run(tmp_path)
    run.trains(0, 7, Phase.BASELINE, 1.0, 1000.0)
    run.hears(PlansAdopted(8, TABLE, None))
    run.trains(8, 19, Phase.ENFORCING, 1.0, 1000.0)
    for refresh, more in enumerate((1.010, 1.011, 1.012, 1.010)):
        first = 20 + 10 * refresh
        run.trains(first, first + 1, Phase.BASELINE, 1.0, 1000.0)
        run.trains(first + 2, first + 9, Phase.ENFORCING, 1.0, 1000.0)
        baseline = range(first, first + 2)
        energies_j = {n: 1000.0 if n in baseline else more * 1000.0 for n in range(first - 4, first + 10)}
        run.hears(BaselineRefreshed(baseline, energies_j, 1.0))
        assert ("save no energy: -1.1 %" in caplog.text) is (refresh > 1)
    assert caplog.text.count("save no energy") == 1


def test_a_baseline_beside_a_straggler_is_none(tmp_path):
    run = Run(tmp_path)
    run.hears(PlansAdopted(0, TABLE, None))
    run.trains(0, 9, Phase.ENFORCING, 1.0, 900.0)
    run.hears(StragglerChanged(10, 8, SLOW, TWO, 1.3))
    run.trains(10, 10, Phase.BASELINE, 1.0, 1000.0)
    run.trains(11, 12, Phase.ENFORCING, 1.0, 900.0)
    run.hears(BaselineRefreshed(range(10, 11), dict.fromkeys(range(2, 13), 900.0), 1.0))
    run.ends()
    assert run.events("baseline") == []


def test_a_straggler_that_is_held_at_a_clock_has_a_ceiling_and_no_factor(tmp_path):
    run = Run(tmp_path).hears(
        StragglerChanged(13, 11, ((1.0, 1.0), (-1200.0, 1.0)), TWO, 1.4),
        StragglerPlansAdopted(15, StragglerPlans(2, {(0, (-1200.0, 1.0)): route_of((-1200.0, 1.0))})),
    )
    (record,) = run.ends()["stragglers"]
    assert (record["slowdown"], record["ceiling_mhz"], record["onset_iteration"]) == (None, 1200, 10)
    assert run.events("straggler_plans")[0]["slowdowns"] == ["1200 MHz", 1.0]


def test_a_failure_the_return_and_the_end_for_good_are_told_with_their_cause(tmp_path):
    run = Run(tmp_path)
    run.hears(RanksLost(7, "a pause"), RanksBack(9), EndedForGood(20, "a bug"))
    assert run.events("paused") == [{"iteration": 7, "cause": "a pause"}]
    assert run.events("rejoined") == [{"iteration": 9}]
    assert run.events("ended_for_good") == [{"iteration": 20, "cause": "a bug"}]


def test_how_many_gpus_lack_their_keeper_is_told_when_it_changes(tmp_path):
    run = Run(tmp_path)
    for iteration, missing in enumerate((0.0, 1.0, 1.0, 0.0)):
        run.hears(heard(iteration, 1.0, 1000.0, keeperless=missing))
    everybody = 2 * STAGES
    assert run.events("keepers") == [{"iteration": 1, "missing": everybody}, {"iteration": 3, "missing": 0}]


def test_a_long_run_writes_its_summary_less_often(tmp_path, monkeypatch):
    """What is written grows with the iterations kept; on the trainer's thread it must stay a small share."""
    now_s = [0.0]
    monkeypatch.setattr(run_recorder, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    run = Run(tmp_path)
    run.recorder._config = Config(run_dir=tmp_path, report={"log_every": 1})
    written: list[float] = []
    monkeypatch.setattr(run.recorder._stats, "series", lambda: written.append(now_s[0]) or ROWS)
    for iteration in range(100):
        now_s[0] += 0.1
        run.trains(iteration, iteration, Phase.ENFORCING, 1.0, 1000.0)
    assert len(written) == pytest.approx(10.0 / 2.0, abs=1)


def test_an_order_of_another_rank_that_equals_one_of_before_is_the_program_s(tmp_path):
    run = Run(tmp_path)
    order = objective_order(JobPower(100.0), by="me")
    expected = JobTarget(1.0, 2000.0, 2000.0, 1000.0), JobTarget(1.2, 1800.0, 1500.0, 750.0)
    changed = ObjectiveChanged(14, JobPower(100.0), order, expected)
    run.hears(PlansAdopted(10, TABLE, None), OrderSent(13, order), changed, changed)
    assert [event["by"] for event in run.events("objective")] == ["me", "the program"]
