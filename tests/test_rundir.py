"""The run directory: files that appear in order, and a training that never waits for them."""

import json
import os
import threading

from perseus_ds.report.rundata import read_events
from perseus_ds.rundir import RunDirectory


def test_events_are_lines_and_files_appear_whole(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.event("phase", 3, phase="warmup")
    directory.write_json("plan.json", {"time_s": 1.5})
    assert directory.flush()
    (event,) = map(json.loads, (tmp_path / "run" / "events.jsonl").read_text().splitlines())
    assert (event["event"], event["iteration"], event["phase"]) == ("phase", 3, "warmup")
    assert json.loads((tmp_path / "run" / "plan.json").read_text()) == {"time_s": 1.5}
    assert directory.failure is None


def test_a_second_run_goes_on_after_the_lines_of_the_first_which_may_have_been_killed(tmp_path):
    first = RunDirectory(tmp_path)
    first.event("start", 0, run=1)
    assert first.flush()
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write('{"time": 1.0, "ev')
    second = RunDirectory(tmp_path)
    second.event("start", 0, run=2)
    second.event("end", 9)
    assert second.flush()
    assert '"run": 1' in (tmp_path / "events.jsonl").read_text()
    assert [(event["event"], event.get("run")) for event in read_events(tmp_path)] == [("start", 2), ("end", None)]


def test_events_do_not_follow_a_link_that_somebody_has_made_first(tmp_path):
    (tmp_path / "other").write_text("theirs")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "events.jsonl").symlink_to(tmp_path / "other")
    directory = RunDirectory(tmp_path / "run")
    directory.event("start", 0)
    directory.flush()
    assert (tmp_path / "other").read_text() == "theirs"
    assert directory.failure is not None


def test_a_write_that_fails_is_kept_and_the_next_is_tried(tmp_path):
    directory = RunDirectory(tmp_path)
    (tmp_path / "plan.json").mkdir()
    directory.write_json("plan.json", {})
    directory.write_json("summary.json", {})
    assert directory.flush()
    assert isinstance(directory.failure, IsADirectoryError)
    assert (tmp_path / "summary.json").is_file()


def test_a_file_system_that_hangs_holds_nobody_up_and_gets_all_once_it_answers(tmp_path):
    os.mkfifo(tmp_path / "events.jsonl")  # opening it waits for a reader
    directory = RunDirectory(tmp_path)
    for iteration in range(5):
        directory.event("switch", iteration)
    directory.write_json("summary.json", {})
    assert not directory.flush(timeout_s=0.1)
    assert "does not answer" in str(directory.failure)
    assert not (tmp_path / "summary.json").exists()
    lines = []
    with (tmp_path / "events.jsonl").open() as reader:
        lines += [reader.readline() for _ in range(5)]
        assert directory.flush()
    assert [json.loads(line)["iteration"] for line in lines] == list(range(5))
    assert (tmp_path / "summary.json").is_file()


def test_what_waits_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("perseus_ds.rundir._MOST_WAITING", 3)
    directory, answers = RunDirectory(tmp_path), threading.Event()
    directory.later(answers.wait)
    for iteration in range(10):
        directory.event("switch", iteration)
    assert isinstance(directory.failure, TimeoutError)
    answers.set()
