"""Status: of a run that is over, of one that has just begun, and of none."""

import json
import subprocess
import sys

import pytest

from perseus_ds.cli import main


def test_a_run_that_has_just_begun(tmp_path, capsys):
    start = {"time": 0.0, "event": "start", "iteration": 0, "framework": "deepspeed 0.19.8", "simulated": True}
    (tmp_path / "events.jsonl").write_text(json.dumps(start) + '\n{"time": 1.0, "event": "ph')
    assert main(["status", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "running" in out
    assert "simulated GPUs" in out


def test_while_the_plans_are_made_it_tells_how_far_that_is(tmp_path, capsys):
    start = {"time": 0.0, "event": "start", "iteration": 0, "framework": "deepspeed 0.19.8", "simulated": True}
    phases = [{"time": 1.0, "event": "phase", "iteration": 9, "phase": "solving"}]
    (tmp_path / "progress.json").write_text('{"progress": "solving, percent: 40/100"}')
    for phase, shown in (("solving", True), ("enforcing", False)):
        phases[0]["phase"] = phase
        (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in (start, *phases)))
        assert main(["status", str(tmp_path)]) == 0
        assert ("solving, percent: 40/100" in capsys.readouterr().out) is shown


def test_a_reader_that_has_enough_ends_it_without_a_traceback(tmp_path):
    (tmp_path / "events.jsonl").write_text(
        '{"time": 0.0, "event": "start", "iteration": 0, "framework": "x", "simulated": true}\n'
    )
    status = f"{sys.executable} -m perseus_ds status {tmp_path}"
    done = subprocess.run(f"{status} | true", shell=True, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("happened", "state", "because"),
    [
        (["paused"], "waiting to rejoin", "a pause, iteration 7"),
        (["paused", "rejoined"], "running", None),
        (["paused", "rejoined", "ended_for_good", "end"], "ended for good", "a pause, iteration 7"),
        (["paused", "rejoined", "end"], "over", None),
    ],
)
def test_after_a_failure_it_tells_whether_perseus_comes_back_and_why(tmp_path, capsys, happened, state, because):
    start = {"time": 0.0, "event": "start", "iteration": 0, "framework": "deepspeed 0.19.8", "simulated": True}
    causes = {"paused": {"cause": "a pause"}, "ended_for_good": {"cause": "a pause"}}
    events = [start, *({"time": 1.0, "event": kind, "iteration": 7, **causes.get(kind, {})} for kind in happened)]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    assert main(["status", str(tmp_path), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["state"], status["because"]) == (state, because)


@pytest.mark.parametrize("command", ["status", "report"])
def test_what_is_no_run_directory_is_one_line_and_exit_code_two(tmp_path, capsys, command):
    assert main([command, str(tmp_path / "none")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no such directory" in line
    assert line.endswith("[run-missing]")


def test_a_damaged_file_is_named(tmp_path, capsys):
    (tmp_path / "summary.json").write_text('{"half')
    assert main(["report", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "summary.json") in line
    assert line.endswith("[run-file-damaged]")


@pytest.mark.launch
def test_a_run_that_is_over(finished_run, capsys):
    assert main(["status", str(finished_run), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["state"], status["phase"], status["iteration"]) == ("over", "enforcing", 59)
    assert status["summary"] == json.loads((finished_run / "summary.json").read_text())
    assert main(["status", str(finished_run)]) == 0
    assert "energy per iteration" in capsys.readouterr().out
