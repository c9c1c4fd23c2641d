"""Changing the objective of a job: what is written, what is answered, and what is refused with one line."""

import json
import resource
import threading
import time

import pytest

from perseus_ds.cli import main
from perseus_ds.coordination.control import parse_control

START = {"time": 0.0, "event": "start", "iteration": 0, "framework": "deepspeed 0.19.8", "simulated": True}
ANSWER = {
    "time": 1.0,
    "event": "objective",
    "iteration": 40,
    "objective": "power=900",
    "by": "me",
    "before_s": 1.0,
    "time_s": 1.1,
    "power_w": 890.0,
    "met": True,
    "at_floor": False,
}


@pytest.fixture
def run_dir(tmp_path):
    append(tmp_path, START)
    return tmp_path


def append(run_dir, event):
    with (run_dir / "events.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\n")


def answered(run_dir, *words, answer=ANSWER) -> int:
    """Give an order; the job answers once the control file has changed."""

    def job():
        time.sleep(0.5)
        append(run_dir, answer)

    thread = threading.Thread(target=job)
    thread.start()
    try:
        return main(["set", str(run_dir), *words])
    finally:
        thread.join()


def orders(run_dir, now_s=None):
    return list(parse_control((run_dir / "control").read_text(), 1, now_s or time.time())[0].values())


def test_an_order_is_written_and_its_answer_is_shown(run_dir, capsys):
    (run_dir / "control").write_text("straggler 0 1.2\nobjective min_time by you\n")
    assert answered(run_dir, "objective=power=0.9kW", "--for", "30m") == 0
    assert capsys.readouterr().out == "power=900: from iteration 40 on 1.1 s (+10.0 %), 890 W predicted for the job\n"
    straggler, order = orders(run_dir)
    assert (straggler.kind, order.kind, order.value) == ("straggler", "objective", 900.0)
    assert "@" in order.by
    assert len(orders(run_dir, time.time() + 1790)) == 2
    assert len(orders(run_dir, time.time() + 1810)) == 1


def test_the_configured_objective_returns_without_a_line(run_dir, capsys):
    (run_dir / "control").write_text("objective min_time by you\n")
    assert answered(run_dir, "objective=configured", "--json", answer={**ANSWER, "met": False}) == 0
    assert json.loads(capsys.readouterr().out)["met"] is False
    assert orders(run_dir) == []


def test_a_job_that_cannot_draw_so_little_says_what_it_can(run_dir, capsys):
    floor = {**ANSWER, "power_w": 700.0, "met": False, "at_floor": True}
    assert answered(run_dir, "objective=power=100W", answer=floor) == 0
    assert "the job cannot draw less than 700 W" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["objective=fast"], "plan-bad-value"),
        (["power=9kW"], "plan-bad-value"),
        (["objective=min_time", "--for", "soon"], "plan-bad-value"),
        (["objective=min_time", "--until", "2001-01-01"], "plan-bad-value"),
        (["objective=min_time", "--wait", "0.1"], "order-unanswered"),
    ],
)
def test_what_is_wrong_is_one_line(run_dir, capsys, words, code):
    assert main(["set", str(run_dir), *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"[{code}]")


def test_a_job_that_is_over_takes_no_order(run_dir, capsys):
    append(run_dir, {"time": 2.0, "event": "end", "iteration": 9})
    assert main(["set", str(run_dir), "objective=min_time"]) == 2
    assert capsys.readouterr().err.endswith("[run-over]\n")
    assert not (run_dir / "control").exists()


def test_a_full_disk_changes_nothing(run_dir, capsys):
    (run_dir / "control").write_text("objective min_time by you\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        # The kernel refuses to write beyond 16 bytes, as it would on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
        status = main(["set", str(run_dir), "objective=min_energy"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert status == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(run_dir / "control") in line
    assert line.endswith("[order-not-written]")
    assert (run_dir / "control").read_text() == "objective min_time by you\n"
    assert {file.name for file in run_dir.iterdir()} == {"control", "events.jsonl"}
