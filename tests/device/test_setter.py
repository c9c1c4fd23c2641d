"""From requests in a pipe to the driver: in order, as often as it may be asked, until the trainer is gone."""

import os
import socket
import threading
import time

import pytest
from fake_gpu import FakeGpu, refusal
from waiting import wait_for

from perseus_ds.device.calibration import Calibration
from perseus_ds.device.driver import DriverTimeout, GpuLost, NotPermitted
from perseus_ds.device.protocol import MESSAGE_BYTES, RESET, Pace, Request, Switch, decode
from perseus_ds.device.send_queue import SendQueue
from perseus_ds.device.setter import Setter
from perseus_ds.device.watcher import Watcher

pytestmark = pytest.mark.against_the_clock("a host that stalls makes requests and what is said of them late")


class Served:
    """A setter at work on a thread, and the trainer's end of its pipe."""

    def __init__(self, min_interval_s: float = 0.0) -> None:
        self.gpu = FakeGpu()
        self.pipe, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.queue = SendQueue(theirs)
        self.watcher = Watcher(self.gpu, self.queue, Calibration(), 0.005)
        setter = Setter(self.gpu, theirs, self.queue, self.watcher, min_interval_s)
        self.thread = threading.Thread(target=setter.serve, daemon=True)
        self.thread.start()

    def ask(self, *clocks_mhz: int, not_before_s: float = 0.0) -> None:
        for mhz in clocks_mhz:
            self.pipe.send(Request(mhz, time.monotonic(), not_before_s).pack())

    def asked(self, *clocks_mhz: int | None) -> None:
        wait_for(lambda: self.gpu.asked == list(clocks_mhz))

    def said(self) -> list:
        """What the trainer has been sent; a switch is passed on when the next one comes."""
        self.watcher.expect(Switch(0.0, 0.0, 0.0, 0, 0, 0))
        self.queue.flush()
        return list(decode(self.pipe.recv(MESSAGE_BYTES)))


@pytest.fixture
def serve():
    """Starts setters, and sees that they end with their pipes."""
    started = []

    def serve(**options):
        started.append(Served(**options))
        return started[-1]

    yield serve
    for served in started:
        served.pipe.close()
        served.thread.join(1.0)
        assert not served.thread.is_alive(), "it ends when the trainer is gone"


def test_clocks_are_set_in_their_order_and_one_that_is_set_is_not_set_again(serve):
    served = serve()
    for mhz in (900, 900, 1200, RESET, RESET, 1410):
        served.ask(mhz)
        time.sleep(0.01)
    served.asked(900, 1200, None, 1410)
    assert [(record.mhz, record.superseded) for record in served.said()] == [(900, 0), (1200, 0), (RESET, 0), (1410, 0)]


def test_at_first_the_clocks_are_at_their_defaults(serve):
    served = serve()
    served.ask(RESET)
    time.sleep(0.02)
    served.ask(900)
    served.asked(900)


def test_a_switch_tells_when_it_was_asked_for_and_when_the_driver_had_it(serve):
    served = serve()
    before_s = time.monotonic()
    served.ask(900)
    served.asked(900)
    time.sleep(0.01)
    (switch,) = served.said()
    assert before_s <= switch.requested_s < switch.applied_s < time.monotonic() - 0.005


def test_a_request_waits_for_its_time_even_when_nothing_else_comes(serve):
    served = serve()
    due_s = time.monotonic() + 0.25
    served.ask(900, not_before_s=due_s)
    time.sleep(0.2)
    assert served.gpu.asked == []
    served.asked(900)
    time.sleep(0.01)
    (switch,) = served.said()
    assert due_s <= switch.applied_s < due_s + 0.05


def test_the_driver_has_a_request_when_it_is_due_however_long_its_calls_take(serve):
    served = serve()
    at_once = served.gpu.lock_clock
    served.gpu.lock_clock = lambda mhz: (time.sleep(0.1), at_once(mhz))
    for mhz in (900, 1200, 1410):
        served.ask(mhz)
        wait_for(lambda mhz=mhz: served.gpu.actual_mhz == mhz)
    due_s = time.monotonic() + 0.3
    served.ask(900, not_before_s=due_s)
    wait_for(lambda: served.gpu.actual_mhz == 900)
    time.sleep(0.01)
    assert served.said()[-1].applied_s == pytest.approx(due_s, abs=0.05)


def test_between_two_requests_to_the_driver_is_the_time_that_it_needs(serve):
    served = serve(min_interval_s=0.2)
    served.ask(900)
    served.asked(900)
    served.ask(1200, 1410, 1200)
    served.asked(900, 1200)
    time.sleep(0.01)
    first, second = served.said()
    assert 0.2 <= second.applied_s - first.applied_s < 0.3
    assert (first.superseded, second.superseded) == (0, 2)


def test_an_error_that_may_pass_is_told_once_and_tried_again_after_a_pause(serve):
    served = serve()
    served.gpu.errors = [refusal(DriverTimeout) for _ in range(3)]
    begin_s = time.monotonic()
    served.ask(900)
    served.asked(900, 900, 900, 900)
    assert 0.15 <= time.monotonic() - begin_s < 2.0
    time.sleep(0.01)
    notice, switch = served.said()
    assert "[driver-timeout]" in notice["notice"]
    assert (switch.mhz, switch.superseded) == (900, 0)


def test_a_newer_request_takes_the_place_of_one_that_fails(serve):
    served = serve()
    served.gpu.errors = [refusal()]
    served.ask(900)
    served.asked(900)
    served.ask(1200)
    served.asked(900, 1200)


@pytest.mark.parametrize("error", [NotPermitted, GpuLost])
def test_after_an_error_that_will_not_pass_the_driver_is_left_alone(serve, error):
    served = serve()
    served.gpu.errors = [refusal(error)]
    for mhz in (900, 1200, RESET):
        served.ask(mhz)
        time.sleep(0.07)
    assert served.gpu.asked == [900]
    assert served.thread.is_alive()


def test_a_trainer_that_dies_with_something_of_ours_unread_ends_it(serve):
    served = serve()
    served.queue.tell("code", "a line that nobody reads")
    served.queue.flush()
    served.ask(900)
    served.asked(900)
    served.pipe.close()
    wait_for(lambda: not served.thread.is_alive())


def test_it_ends_with_its_parent_though_the_pipe_is_open(serve, monkeypatch):
    served = serve()
    served.ask(900)
    served.asked(900)
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert wait_for(lambda: not served.thread.is_alive()) < 0.3


def test_the_trainer_s_pace_is_the_watcher_s(serve):
    served = serve()
    served.pipe.send(Pace(0.75).pack())
    served.ask(900)
    served.asked(900)
    assert served.watcher.poll_s == 0.75
