"""The commands ``plan`` and ``emulate``: their JSON, their files, their answers to wrong input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import perseus_ds.simulator
from perseus_ds.cli import main
from perseus_ds.frontier.baselines import BASELINES

PROFILE = str(Path(perseus_ds.simulator.__file__).parent / "profiles" / "gpt3-175b-a100-sxm.csv")
PLAN = ["plan", PROFILE, "--microbatches", "8", "--blocking-power", "83.64", "--points", "3", "--json"]


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert main(list(arguments)) == 0
    return json.loads(capsys.readouterr().out)


def test_plan_s_json(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, *PLAN)
    assert list(document) == [
        "schedule", "stages", "microbatches", "chunks", "instructions", "blocking_power_w", "planner",
        "baseline", "t_min_s", "t_star_s", "frontier", "chosen", "seconds",
    ]  # fmt: skip
    assert set(document["baseline"]) == {"time_s", "energy_j"}
    assert len(document["frontier"]) == 3
    for row in document["frontier"]:
        assert set(row) == {"time_s", "energy_j", "lower_bound_j"}
        assert row["energy_j"] >= row["lower_bound_j"] > 0
    chosen = document["chosen"]
    assert set(chosen) == {"time_s", "energy_j", "lower_bound_j", "gap", "saving", "switches"}
    assert chosen["saving"] == pytest.approx(1 - chosen["energy_j"] / document["baseline"]["energy_j"])
    assert chosen["saving"] > 0.1
    assert set(document["seconds"]) == {"frontier", "rounding", "total"}


def test_a_large_problem_shows_how_far_it_is(
    capsys: pytest.CaptureFixture[str], log_lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(capsys, *PLAN)
    assert not log_lines.messages
    monkeypatch.setattr("perseus_ds.commands.plan._MANY_INSTRUCTIONS", 60)
    answer(capsys, *PLAN)
    assert "solving, percent [####################] 100/100" in log_lines.messages
    assert any(message.startswith("rounding, plans [") for message in log_lines.messages)


def test_with_a_switch_latency_rows_say_what_was_asked_for_and_what_to_expect(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = answer(capsys, *PLAN, "--switch-latency", "0.03", "--switch-jitter", "0.005")
    rows = [*document["frontier"], document["chosen"]]
    assert [row["deadline_s"] for row in rows[:3]] == pytest.approx(
        [document["t_min_s"], (document["t_min_s"] + document["t_star_s"]) / 2, document["t_star_s"]]
    )
    for row in rows:
        assert row["time_s"] < 1.005 * row["deadline_s"]
        assert row["energy_j"] < 1.02 * row["lower_bound_j"]
    for one in rows[:3]:
        assert not any(other["time_s"] <= one["time_s"] and other["energy_j"] < one["energy_j"] for other in rows[:3])
    punctual = answer(capsys, *PLAN, "--switch-latency", "0")
    assert [row["energy_j"] for row in punctual["frontier"]] == pytest.approx(
        [row["energy_j"] for row in answer(capsys, *PLAN)["frontier"]]
    )
    late = answer(capsys, *PLAN, "--switch-latency", "0.1", "--planner", "zeus-per-stage")
    for row in late["frontier"]:  # one clock per stage: none comes late
        assert row["time_s"] == pytest.approx(row["deadline_s"])


def test_the_table_says_what_jitter_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN[:-1], "--switch-latency", "0.1"]) == 0
    assert "what jittering clocks make expect" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--switch-latency", "-1"), "--switch-latency"),
        (("--switch-latency", "nan"), "--switch-latency"),
        (("--switch-jitter", "0.01"), "with --switch-latency"),
        (("--switch-latency", "0.1", "--switch-jitter", "-1"), "--switch-jitter"),
    ],
)
def test_latencies_that_are_no_time_are_refused(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], named: str
) -> None:
    assert main([*PLAN, *options]) == 2
    assert named in capsys.readouterr().err


def test_emulate_counts_jitter(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("emulate", PROFILE, "--microbatches", "8", "--pipelines", "2", "--straggler", "1.2")
    punctual = answer(capsys, *arguments, "--json")
    late = answer(capsys, *arguments, "--switch-latency", "0.1", "--json")
    assert late["saving_lost_to_jitter"] == pytest.approx(punctual["saving_total"] - late["saving_total"])
    assert 0 < late["saving_lost_to_jitter"] < 0.02
    assert 0 < late["slowdown_by_jitter"] < 0.01
    assert "saving_lost_to_jitter" not in punctual
    assert main([*arguments, "--switch-latency", "0.1"]) == 0
    assert "jittering clocks cost" in capsys.readouterr().out


@pytest.mark.parametrize("planner", BASELINES)
def test_every_planner_is_measured_against_the_same_bound(capsys: pytest.CaptureFixture[str], planner: str) -> None:
    document = answer(capsys, *PLAN, "--planner", planner)
    ours = answer(capsys, *PLAN)
    assert document["planner"] == planner
    assert document["chosen"]["energy_j"] >= document["chosen"]["lower_bound_j"]
    assert document["baseline"] == ours["baseline"]


@pytest.mark.parametrize("arguments", [["--schedule", "gpipe"], ["--schedule", "interleaved", "--chunks", "2"]])
def test_other_schedules(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    document = answer(capsys, *PLAN, *arguments)
    assert document["instructions"] == 2 * 8 * 8 * document["chunks"]
    assert document["chosen"]["saving"] > 0


def test_gpus_per_stage_multiply_energies_only(capsys: pytest.CaptureFixture[str]) -> None:
    one, eight = answer(capsys, *PLAN), answer(capsys, *PLAN, "--gpus-per-stage", "8")
    assert eight["chosen"]["energy_j"] == pytest.approx(8 * one["chosen"]["energy_j"])
    assert eight["chosen"]["saving"] == pytest.approx(one["chosen"]["saving"])


def test_output_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, *PLAN, "-o", str(tmp_path / "out"))
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "freqs_pipeline_00000.py", "freqs_pipeline_00001.py", "freqs_pipeline_00002.py",
        "frontier.json", "frontier.png", "frontier.svg", "timeline.png", "timeline.svg",
    ]  # fmt: skip
    written = json.loads((tmp_path / "out" / "frontier.json").read_text())
    assert written["chosen"] == document["chosen"]
    assert len(written["chosen_plan"]["frequency_mhz"]) == document["instructions"]


def test_tables_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([argument for argument in PLAN if argument != "--json"]) == 0
    assert "clock switches per iteration" in " ".join(capsys.readouterr().out.split())
    assert main(["emulate", PROFILE, "--microbatches", "8", "--pipelines", "2"]) == 0
    assert "Answered in" in capsys.readouterr().out


def test_emulate_s_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["emulate", PROFILE, "--microbatches", "16", "--pipelines", "4", "--blocking-power", "83.64", "--json"]
    document = answer(capsys, *arguments, "--straggler", "1.2", "--straggler", "1.1", "--strong-scaling")
    assert document["t_straggler_s"] == pytest.approx(1.2 * document["t_min_s"])
    assert document["t_opt_s"] == min(document["t_star_s"], document["t_straggler_s"])
    assert document["saving_total"] > document["saving_intrinsic"] > 0
    assert set(document["planners"]) == set(BASELINES)
    assert {row["microbatches"] * row["pipelines"] for row in document["strong_scaling"]} == {64}
    alone = answer(capsys, *arguments)
    assert alone["saving_total"] == pytest.approx(alone["saving_intrinsic"])


SIGNAL = ("emulate", PROFILE, "--microbatches", "8", "--pipelines", "4", "--blocking-power", "83.64", "--signal")


def test_what_a_signal_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "signal.csv"
    file.write_text("iterations,power\n10,100%\n20,75%\n")
    document = answer(capsys, *SIGNAL, str(file), "--json")
    usual, less = document["steps"]
    assert usual["slowdown"] == pytest.approx(0.0, abs=0.001)
    assert less["power_w"] == pytest.approx(0.75 * usual["target_w"])
    assert 0.01 < less["slowdown"] < less["uniform_slowdown"], "waiting GPUs pay first"
    assert document["slowdown"] == pytest.approx((10 * usual["slowdown"] + 20 * less["slowdown"]) / 30)
    assert document["energy_j"] == pytest.approx(10 * usual["energy_j"] + 20 * less["energy_j"])
    assert main([*SIGNAL, str(file)]) == 0
    assert "Whole signal" in capsys.readouterr().out


def test_a_signal_goes_with_no_straggler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SIGNAL, str(tmp_path / "signal.csv"), "--straggler", "1.2"]) == 2
    assert "--straggler" in capsys.readouterr().err


def test_strong_scaling_keeps_every_straggler(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["emulate", PROFILE, "--microbatches", "4", "--pipelines", "4", "--strong-scaling", "--json"]
    document = answer(capsys, *arguments, *["--straggler", "1.2"] * 3)
    assert [row["pipelines"] for row in document["strong_scaling"]] == [4, 8]
    document = answer(capsys, *arguments, *["--straggler", "1.2"] * 2)
    assert [row["pipelines"] for row in document["strong_scaling"]] == [2, 4, 8]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--microbatches", "0"], "microbatches: 0 is not allowed"),
        (["--chunks", "0"], "chunks: 0 is not allowed"),
        (["--schedule", "interleaved", "--chunks", "-1"], "chunks: -1 is not allowed"),
        (["--blocking-power", "-5"], "blocking power: -5.0 is not allowed"),
        (["--gpus-per-stage", "0"], "GPUs per stage: 0 is not allowed"),
        (["--points", "0"], "--points: 0 is not allowed"),
        (["--tolerance", "2"], "--tolerance: 2.0 is not allowed"),
        (["--objective", "faster"], "objective: 'faster' is not allowed"),
        (["--objective", "deadline=0.1"], "no plan is faster than"),
        (["--planner", "max", "--objective", "power_cap=1"], "planner max has no such plan"),
        (["-o", "/dev/null/x"], "cannot write to"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main([*PLAN, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_a_fresh_process_answers_at_once() -> None:
    code = (
        "import time; begin = time.process_time(); import perseus_ds.frontier as f; imported = time.process_time();"
        "from perseus_ds.commands.plan import run; print(imported - begin)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.5
