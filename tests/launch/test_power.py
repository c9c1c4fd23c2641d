"""A job that follows ordered powers, under real launchers: DeepSpeed and Megatron-Core."""

import json
import sys
from itertools import groupby

import pytest
from launching import DS_CONFIG, QUICK, ROOT, TRAIN, deepspeed_command, run, torchrun_command, write_config

from perseus_ds.config import SimulatorConfig, ThrottleConfig
from perseus_ds.frontier import Problem
from perseus_ds.frontier.baselines import max_frequencies
from perseus_ds.frontier.objectives import average_power_w
from perseus_ds.frontier.plan import evaluate
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import write_profile
from perseus_ds.runtime.simulation import simulated_profile

pytestmark = [
    pytest.mark.launch,
    # Beside other jobs, two cores stall ranks for seconds, and a rank that waits draws less than was ordered.
    pytest.mark.quiet_host,
    pytest.mark.against_the_clock("the measured power of iterations on two cores is compared with the target"),
]

FOLLOW = ROOT / "examples" / "power" / "follow.py"
MEGATRON = ROOT / "examples" / "megatron_gpt" / "train.py"
SIMULATOR = {**QUICK["simulator"], "time_scale": 0.4}
HELD, STEPS = 21, 96
SIGNAL = f"iterations,power\n4,100%\n{HELD},85%\n{HELD},70%\n100,100%\n"


def follow(framework: str, directory) -> dict[str, object]:
    """Run a job of two stages that follows the signal; return what its run directory tells."""
    write_profile(simulated_profile(SimulatorConfig(**SIMULATOR), stages=2), directory / "given.csv")
    config = write_config(
        directory,
        profiling={"profile": str(directory / "given.csv")},
        simulator=SIMULATOR,
        report={"log_every": 1},  # from these files the orders' author learns where the job is
    )
    (directory / "signal.csv").write_text(SIGNAL)
    arguments = ["--perseus", config, "--steps", STEPS, "--layers", 2]
    if framework == "deepspeed":
        job = deepspeed_command(2, "--module", "perseus_ds", "run", TRAIN, "--deepspeed_config", DS_CONFIG, *arguments)
    else:
        job = torchrun_command(2, "-m", "perseus_ds", "run", MEGATRON, *arguments)
    done = run([sys.executable, str(FOLLOW), str(directory / "run"), str(directory / "signal.csv"), "--", *job])
    assert done.returncode == 0, done.stdout
    return {name: json.loads((directory / "run" / f"{name}.json").read_text()) for name in ("summary", "iterations")}


@pytest.mark.parametrize("framework", ["deepspeed", "megatron"])
def test_the_mean_power_is_what_was_ordered_within_three_iterations(framework, tmp_path):
    found = follow(framework, tmp_path)
    rows = found["summary"]["power"]
    assert len(rows) == 2
    baseline_w = found["summary"]["baseline"]["power_w"] * found["summary"]["pipelines"]
    for row, share in zip(rows, (0.85, 0.70), strict=True):
        assert row["target_w"] == pytest.approx(share * baseline_w, rel=0.01)
        assert row["answered_iterations"] <= 3
        assert row["iterations"] >= 20
        assert not row["at_floor"]
        assert row["measured_w"] == pytest.approx(row["target_w"], rel=0.02)
        assert longest_above(found["iterations"], row, 1.05 * row["target_w"]) <= 3


BEGIN, END, ANSWERED = 40, 52, 4  # of a straggler; iterations until its end has been seen, and answered


@pytest.mark.parametrize(("slowdown", "share"), [(1.1, 0.65), (1.2, 0.8)], ids=["power decides", "it decides"])
def test_two_pipelines_keep_to_a_power_that_is_ordered_while_they_profile_whoever_straggles(slowdown, share, tmp_path):
    """The file has two orders that contradict each other: the first one holds, and one line tells of the second."""
    throttle = ThrottleConfig(pipeline=0, stage=1, begin_iteration=BEGIN, end_iteration=END, slowdown=slowdown)
    settings = SimulatorConfig(**{**SIMULATOR, "time_scale": 0.6}, throttle=(throttle,))
    problem = Problem(schedule_dag("1f1b", 2, 8), simulated_profile(settings, stages=2), 83.64)
    highest = evaluate(problem, max_frequencies(problem))
    target_w = round(2 * share * average_power_w(highest))
    config = write_config(tmp_path, simulator=settings.model_dump(exclude_unset=True, mode="json"))
    (tmp_path / "run").mkdir()
    orders = f"objective power={target_w}W by the site\nobjective power=1W by another site\n"
    (tmp_path / "run" / "control").write_text(orders)
    job = torchrun_command(4, "-m", "perseus_ds", "run", MEGATRON, "--perseus", config, "--stages", 2)
    done = run([*job, "--steps", "66", "--layers", "2"])
    assert done.returncode == 0, done.stdout
    (refused,) = [line for line in done.stdout.splitlines() if "[control-line]" in line]
    assert "another site" in refused

    read = lambda name: json.loads((tmp_path / "run" / f"{name}.json").read_text())  # noqa: E731
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    answers = [event for event in events if event["event"] == "objective"]
    assert [(event["by"], event["time_s"] is None) for event in answers] == [("the site", True), ("the site", False)]
    first_plans = next(event["iteration"] for event in events if event["event"] == "plans")
    assert answers[1]["iteration"] == first_plans
    straggler = next(event for event in events if event["event"] == "straggler" and event["stage"] == 1)
    assert abs(straggler["onset_iteration"] - BEGIN) <= 1

    (row,) = read("summary")["power"]
    iterations = read("iterations")
    assert row["target_w"] == target_w
    assert longest_above(iterations, row, 1.05 * target_w, pipelines=2) <= 3
    if slowdown == 1.1:
        assert row["measured_w"] == pytest.approx(target_w, rel=0.02)
    else:  # so slow that even the fastest plan draws less
        t_min_s = next(event["t_min_s"] for event in events if event["event"] == "plans")
        switch = next(event for event in events if event["event"] == "switch" and event["iteration"] > BEGIN)
        assert switch["plans"][0]["time_s"] == pytest.approx(t_min_s, rel=1e-3)
        held = [one for one in iterations if one["phase"] == "enforcing" and one["energy_j"]]
        slowed = [one for one in held if BEGIN <= one["iteration"] < END]
        others = [one for one in held if one["iteration"] not in range(BEGIN, END + ANSWERED)]
        assert mean_power_w(slowed) < 0.95 * target_w
        assert mean_power_w(others) == pytest.approx(target_w, rel=0.02)


def mean_power_w(iterations) -> float:
    """Return the mean power of the two pipelines."""
    return 2 * sum(one["energy_j"] for one in iterations) / sum(one["iteration_time_s"] for one in iterations)


def longest_above(iterations, row, limit_w: float, pipelines: int = 1) -> int:
    """Return the most iterations in a row that drew more than a limit while an order held."""
    held = range(row["begin_iteration"], row["begin_iteration"] + row["iterations"])
    known = [one for one in iterations if one["iteration"] in held and one["energy_j"]]
    above = [pipelines * one["energy_j"] / one["iteration_time_s"] > limit_w for one in known]
    return max((len(list(group)) for is_above, group in groupby(above) if is_above), default=0)
