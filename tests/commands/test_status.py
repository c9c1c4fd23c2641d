"""Status: of a run that is over, of one that has just begun, and of none."""

import json

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
    assert (status["state"], status["phase"], status["iteration"]) == ("over", "enforcing", 33)
    assert status["summary"] == json.loads((finished_run / "summary.json").read_text())
    assert main(["status", str(finished_run)]) == 0
    assert "energy per iteration" in capsys.readouterr().out
