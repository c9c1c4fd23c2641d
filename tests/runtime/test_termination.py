"""SIGTERM is heard of before the program's own handler acts on it, and the program keeps its handler."""

import signal
import threading

import pytest

from perseus_ds.runtime.termination import TerminationNotice


@pytest.fixture
def heard():
    """What was heard, in order; the program's own handler is the one who says ``own``."""
    heard = []

    def own(*_) -> str:
        heard.append("own")
        return "what the program returns"

    before = signal.signal(signal.SIGTERM, own)
    yield heard
    signal.signal(signal.SIGTERM, before)


def test_it_is_told_first_and_once_however_often_it_looks(heard):
    notice = TerminationNotice(lambda: heard.append("told"))
    for _ in range(3):
        notice.watch()
    assert signal.getsignal(signal.SIGTERM)(signal.SIGTERM, None) == "what the program returns"
    signal.raise_signal(signal.SIGTERM)
    assert heard == ["told", "own"] * 2


def test_released_the_program_has_its_own_handler_back(heard):
    own, notice = signal.getsignal(signal.SIGTERM), TerminationNotice(lambda: heard.append("told"))
    notice.watch()
    notice.release()
    assert signal.getsignal(signal.SIGTERM) is own
    notice.release()


def test_a_handler_that_came_later_is_left_in_force(heard):
    notice = TerminationNotice(lambda: heard.append("told"))
    notice.watch()
    later = lambda *_: heard.append("later")  # noqa: E731
    signal.signal(signal.SIGTERM, later)
    notice.release()
    assert signal.getsignal(signal.SIGTERM) is later
    notice.watch()
    signal.raise_signal(signal.SIGTERM)
    assert heard == ["told", "later"]


@pytest.mark.parametrize("default", [signal.SIG_DFL, signal.SIG_IGN])
def test_where_the_program_has_no_handler_there_is_none(heard, default):
    signal.signal(signal.SIGTERM, default)
    TerminationNotice(lambda: heard.append("told")).watch()
    assert signal.getsignal(signal.SIGTERM) is default


def test_on_another_thread_than_the_main_one_it_changes_nothing(heard):
    own, notice = signal.getsignal(signal.SIGTERM), TerminationNotice(lambda: heard.append("told"))
    thread = threading.Thread(target=lambda: (notice.watch(), notice.release()))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is own
