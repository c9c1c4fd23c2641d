"""The control file's lines, and how they become announcements."""

import time

from perseus_ds.coordination.control import ControlFile, parse_control


def test_lines_that_are_understood_and_lines_that_are_not():
    text = "# by the power manager\nstraggler 1 1.25\n\nstraggler 9 1.1\nstraggler 0\nfaster 0 1.1\nstraggler 0 0.5\n"
    slowdowns, wrong = parse_control(text, pipelines=2)
    assert slowdowns == {1: 1.25}
    assert [number for number, _ in wrong] == [4, 5, 6, 7]


def test_each_change_is_announced_once_and_the_end_of_it_too(tmp_path):
    file = tmp_path / "control"
    control = ControlFile(file, pipelines=3)

    def announced(text):
        file.write_text(text)
        time.sleep(1.2)
        found = []
        while one := control.next_announcement():
            found.append(one)
        return found

    assert control.next_announcement() is None
    assert announced("straggler 0 1.1\nstraggler 2 1.5\n") == [(0, 1.1), (2, 1.5)]
    assert announced("straggler 2 1.3\n") == [(2, 1.3), (0, 1.0)]
    file.unlink()
    time.sleep(1.2)
    assert control.next_announcement() == (2, 1.0)
    assert control.next_announcement() is None
    control.close()
