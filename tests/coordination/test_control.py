"""The control file's lines, and how they become announcements."""

import logging
import time

import pytest

from perseus_ds.coordination import control as module
from perseus_ds.coordination.control import ControlFile, control_line, parse_control
from perseus_ds.coordination.orders import Order, objective_order
from perseus_ds.frontier.objectives import MinEnergy, MinTime
from perseus_ds.frontier.power_objectives import JobPower


def test_lines_that_are_understood_and_lines_that_are_not():
    text = "# by the power manager\nstraggler 1 1.25\n\nstraggler 9 1.1\nstraggler 0\nfaster 0 1.1\nstraggler 0 0.5\n"
    wanted, wrong = parse_control(text, pipelines=2, now_s=0.0)
    assert wanted == {("straggler", 1): Order("straggler", 1, 1.25)}
    assert [number for number, _, _ in wrong] == [4, 5, 6, 7]


def test_an_order_may_name_its_end_and_its_author():
    line = control_line("objective power=12kW", until_s=1000.0, by="ops@site")
    (order,) = parse_control(line, 1, now_s=999.0)[0].values()
    assert (order, order.by) == (objective_order(JobPower(12e3)), "ops@site")
    assert parse_control(line, 1, now_s=1000.0) == ({}, [(1, line, "its time is over")])
    assert parse_control("objective min_energy until 1970-01-01T00:16:40Z", 1, now_s=1000.0)[0] == {}
    ((_, _, why),) = parse_control("objective min_energy until noon", 1, 0.0)[1]
    assert "noon" in why


def test_of_two_lines_that_contradict_each_other_the_first_holds():
    wanted, wrong = parse_control("objective min_energy\nobjective power=9kW\nobjective min_energy\n", 1, 0.0)
    assert list(wanted.values()) == [objective_order(MinEnergy())]
    assert [(number, why) for number, _, why in wrong] == [(2, "it contradicts a line above it")]


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PERIOD_S", 0.01)
    return tmp_path / "control"


def told(control: ControlFile, wait_s: float = 0.3) -> list[tuple[int, float]]:
    """Subjects and values of all orders, once the file has been read again."""
    time.sleep(wait_s)
    found = []
    while order := control.next_order():
        found.append((order.subject, order.value))
    return found


def test_a_file_that_any_user_may_write_gives_no_orders_and_is_told_of_once(file, log_lines):
    file.write_text("straggler 2 1.5\n")
    file.chmod(0o666)
    control = ControlFile(file, pipelines=3)
    assert told(control) == []
    assert ["[control-refused]" in line for line in log_lines.messages] == [True]
    file.chmod(0o644)
    assert told(control) == [(2, 1.5)]


def test_each_change_is_announced_once_and_the_end_of_it_too(file):
    control = ControlFile(file, pipelines=3)
    assert told(control) == []
    file.write_text("straggler 0 1.1\nstraggler 2 1.5\n")
    assert told(control) == [(0, 1.1), (2, 1.5)]
    assert told(control) == []
    file.write_text("straggler 2 1.3\n")
    assert told(control) == [(2, 1.3), (0, 1.0)]
    file.write_text("straggler 2 1.3\nstraggler 1 1.0\n")
    assert told(control) == [], "1.0 is nothing new"
    file.unlink()
    assert told(control) == [(2, 1.0)]
    assert told(control) == []
    file.write_text("straggler 2 1.3\n")
    assert told(control) == [(2, 1.3)]
    file.write_text("straggler 2 1.0\n")
    assert told(control) == [(2, 1.0)]
    file.unlink()
    assert told(control) == [], "it is over already"
    control.close()


def test_a_wrong_line_is_named_once_and_does_not_hide_the_others(file, caplog):
    caplog.set_level(logging.WARNING, "perseus_ds")
    control = ControlFile(file, pipelines=1)
    file.write_text("straggler 0 1.1\nstraggler nonsense\n")
    assert told(control) == [(0, 1.1)]
    (warning,) = (record.getMessage() for record in caplog.records)
    assert "2" in warning
    assert "straggler nonsense" in warning
    control.close()


def test_an_objective_ends_with_its_line_or_by_itself(file):
    control = ControlFile(file, pipelines=1)
    file.write_text("objective min_energy\n")
    time.sleep(0.3)
    assert control.next_order() == objective_order(MinEnergy())
    file.write_text(control_line("objective min_time", until_s=time.time() + 2.0, by="me"))
    time.sleep(0.3)
    assert control.next_order() == objective_order(MinTime())
    assert control.next_order() is None
    time.sleep(2.5)
    assert control.next_order() == objective_order(None)
    assert control.next_order() is None
    control.close()


def test_a_file_that_cannot_be_read_changes_nothing(file):
    control = ControlFile(file, pipelines=1)
    file.write_text("straggler 0 1.1\n")
    assert told(control) == [(0, 1.1)]
    file.write_bytes(b"\xff\xfe")
    assert told(control) == []
    control.close()


def test_a_file_that_is_being_written_revokes_nothing(file, monkeypatch):
    monkeypatch.setattr(module, "_PERIOD_S", 0.1)
    file.write_text("straggler 0 1.1\n")
    control = ControlFile(file, pipelines=1)
    assert told(control) == [(0, 1.1)]
    for _ in range(6):
        with file.open("w") as out:
            assert told(control, wait_s=0.05) == []
            out.write("straggler 0 1.1\n")
        assert told(control) == []
    control.close()


def test_a_closed_file_is_watched_no_more(file):
    control = ControlFile(file, pipelines=1)
    control.close()
    time.sleep(0.1)
    file.write_text("straggler 0 1.1\n")
    assert told(control) == []
