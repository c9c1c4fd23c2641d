"""What a run directory tells: intervals from its steady iterations."""

import json

import numpy as np
import pytest

from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.trace import StageTrace, TimedOperation
from perseus_ds.profiling.table import CurveKey, ProfilePoint, make_profile, write_profile
from perseus_ds.report.rundata import read_run

FORWARD, BACKWARD = Kind.FORWARD, Kind.BACKWARD


def test_the_confidence_interval_holds_the_true_saving(tmp_path):
    random = np.random.default_rng(3)
    rows = [
        {"iteration": i, "phase": phase, "steady": True, "energy_j": random.normal(mean, 8.0), "iteration_time_s": 1.0}
        for i, (phase, mean) in enumerate([("baseline", 1000.0)] * 20 + [("enforcing", 880.0)] * 20)
    ]
    rows.append({"iteration": 40, "phase": "enforcing", "steady": False, "energy_j": 9e9, "iteration_time_s": 9.0})
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "iterations.json").write_text(json.dumps(rows))
    saving = read_run(tmp_path).confidence("energy_j")
    assert saving.low < 0.12 < saving.high
    assert saving.high - saving.low < 0.02
    slowdown = read_run(tmp_path).confidence("iteration_time_s")
    assert (slowdown.low, slowdown.high) == (0.0, 0.0)


@pytest.mark.parametrize("baselines", [3, 6, 40])
def test_the_interval_of_the_saving_holds_the_truth_however_few_baselines_there_are(tmp_path, baselines):
    random = np.random.default_rng(baselines)
    (tmp_path / "summary.json").write_text("{}")
    held = 0
    for _ in range(300):
        phases = [("baseline", 1000.0)] * baselines + [("enforcing", 900.0)] * 50
        energies_j = [(phase, mean * random.normal(1.0, 0.02)) for phase, mean in phases]
        rows = [
            {"iteration": i, "phase": phase, "steady": True, "energy_j": energy_j, "iteration_time_s": 1.0}
            for i, (phase, energy_j) in enumerate(energies_j)
        ]
        (tmp_path / "iterations.json").write_text(json.dumps(rows))
        saving = read_run(tmp_path).confidence("energy_j")
        held += saving.low <= 0.1 <= saving.high
    assert 0.9 < held / 300 < 0.99


def test_what_counters_leave_in_doubt_of_one_refresh_widens_the_interval(tmp_path):
    """The energies of a refresh share an error, and hardly scatter."""
    random, told_j, held = np.random.default_rng(2), 5.0, 0
    (tmp_path / "summary.json").write_text("{}")
    for _ in range(300):
        ran = [("baseline", random.normal(1000.0, told_j))] * 4 + [("enforcing", 900.0)] * 16
        rows = [
            {"iteration": i, "phase": phase, "steady": True, "energy_j": random.normal(mean), "iteration_time_s": 1.0}
            for i, (phase, mean) in enumerate(ran)
        ]
        (tmp_path / "iterations.json").write_text(json.dumps(rows))
        event = {"event": "baseline", "iteration": 0, "saving": 0.1, "energy_j": 1000.0, "energy_sd_j": told_j}
        savings_of(tmp_path, [event])
        interval = read_run(tmp_path).confidence("energy_j")
        held += interval.low <= 0.1 <= interval.high
    assert 0.9 < held / 300 < 0.99


def test_from_the_third_refresh_on_their_spread_is_the_saving_s_interval(tmp_path):
    points = savings_of(
        tmp_path,
        [{"event": "baseline", "iteration": i, "saving": saving} for i, saving in enumerate((0.1, 0.12, 0.11))],
    )
    interval = read_run(tmp_path).confidence("energy_j")
    assert points[-1].half_width == pytest.approx(4.303 * 0.01 / 3**0.5)
    assert (interval.low, interval.high) == pytest.approx((0.11 - points[-1].half_width, 0.11 + points[-1].half_width))


def savings_of(directory, events):
    (directory / "summary.json").write_text("{}")
    (directory / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return read_run(directory).savings()


def test_the_rebuilt_problem_knows_what_the_power_limit_makes_of_rested_gpus(tmp_path):
    points = [ProfilePoint(1980, 0.98, 700.0), ProfilePoint(1600, 1.0, 690.0)]
    write_profile(make_profile({CurveKey(0, kind): points for kind in (FORWARD, BACKWARD)}), tmp_path / "profile.csv")
    ran = [(FORWARD, 0, 0.9), (BACKWARD, 0, 1.0), (FORWARD, 1, 1.0), (BACKWARD, 1, 1.0), (FORWARD, 2, 1.0)]
    timed = [
        TimedOperation(Operation(kind, number), at_s, at_s + one_s) for at_s, (kind, number, one_s) in enumerate(ran)
    ]
    trace = StageTrace(0, 0, 5.0, tuple(timed))
    (tmp_path / "trace.json").write_text(json.dumps([trace.to_json()]))
    told = {"blocking_power_w": [60.0], "gpus_per_stage": 1, "limited": [[0, "forward", 0, -1]]}
    (tmp_path / "frontier.json").write_text(json.dumps(told))
    (tmp_path / "summary.json").write_text("{}")
    rested = read_run(tmp_path).problem.rested
    assert [one.microbatch for one, multiple in rested.items() if multiple < 1.0] == [0]
    assert {one.kind for one in rested} == {FORWARD}
