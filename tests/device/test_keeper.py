"""The keeper's process from its command line to its end, here within this process."""

import json
import os
import signal
import socket
import threading
from pathlib import Path

import pytest
from waiting import wait_for

from perseus_ds.device import keeper
from perseus_ds.device.protocol import MESSAGE_BYTES, Request, Sample, decode

TIMER_SLACK = Path("/proc/self/timerslack_ns")  # the main thread's
ARGUMENTS = ["--cuda-index", "0", "--zeusd-address", "/nowhere", "--poll-s", "0.005", "--min-switch-interval-s", "0"]


@pytest.fixture(autouse=True)
def signals():
    """The keeper changes how signals are taken and timers end; this process wants them back."""
    numbers = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM)
    before, timer_slack_ns = {number: signal.getsignal(number) for number in numbers}, TIMER_SLACK.read_text()
    yield
    TIMER_SLACK.write_text(timer_slack_ns)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def pipe():
    """The trainer's end; the keeper's is closed by the keeper."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(5.0)
    yield ours, theirs.detach()
    ours.close()


def test_without_a_trainer_it_resets_the_clocks_and_ends(gpu):
    gpu.lock_clock(900)
    assert keeper.main([*ARGUMENTS, "--fd", "-1"]) == 0
    assert not gpu.is_locked()


def test_without_a_trainer_it_prints_why_it_cannot(gpu, capsys):
    gpu.set_fault("gpu_is_lost")
    assert keeper.main([*ARGUMENTS, "--fd", "-1"]) == 1
    assert "[gpu-lost]" in capsys.readouterr().err


def test_a_trainer_is_told_why_it_cannot(gpu, pipe):
    ours, fd = pipe
    gpu.set_fault("gpu_is_lost")
    assert keeper.main([*ARGUMENTS, "--fd", str(fd)]) == 1
    (record,) = decode(ours.recv(MESSAGE_BYTES))
    assert "[gpu-lost]" in record["error"]


def test_it_greets_serves_and_gives_the_clocks_back(gpu, pipe):
    ours, fd = pipe
    seen = {}

    def train():
        (seen["greeting"],) = decode(ours.recv(MESSAGE_BYTES))
        ours.send(Request(900, 0.0).pack())
        wait_for(gpu.is_locked)
        while not any(isinstance(record, Sample) for record in decode(ours.recv(MESSAGE_BYTES))):
            pass
        seen["timer_slack_ns"] = TIMER_SLACK.read_text()
        seen["handlers"] = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)]
        ours.shutdown(socket.SHUT_WR)

    trainer = threading.Thread(target=train)
    trainer.start()
    assert keeper.main([*ARGUMENTS, "--fd", str(fd)]) == 0
    trainer.join()
    assert not gpu.is_locked()
    assert seen["handlers"] == [signal.SIG_IGN] * 3
    assert int(seen["timer_slack_ns"]) == 1000, "a clock asked for ahead waits for no timer"
    assert json.loads(json.dumps(seen["greeting"])) == {
        "pid": os.getpid(),
        "backend": "nvml",
        "reason": "this process may set clocks",
        "uuid": gpu.uuid,
        "name": "Test GPU",
        "driver_version": "1.2.3",
        "supported_clocks_mhz": [1410, 1200, 900],
        "power_limit_w": 400.0,
        "modes": "ECC on",
        "sets_clocks": True,
        "calibration": {"switch_latencies_s": [], "counter_period_s": 0.0, "readings_period_s": 0.0},
    }


def keep_until_the_trainer_ends_on_a_faulty_gpu(gpu, pipe, fault):
    ours, fd = pipe

    def train():
        ours.recv(MESSAGE_BYTES)
        gpu.set_fault(fault)
        ours.close()

    trainer = threading.Thread(target=train)
    trainer.start()
    keeper.main([*ARGUMENTS, "--fd", str(fd)])
    trainer.join()


def test_a_reset_that_fails_at_the_end_is_told_but_not_for_a_gpu_that_is_gone(gpu, pipe, capfd):
    keep_until_the_trainer_ends_on_a_faulty_gpu(gpu, pipe, "unknown")
    assert "perseus-ds reset-clocks" in capfd.readouterr().err


def test_a_gpu_that_is_gone_has_no_clocks_to_reset(gpu, pipe, capfd):
    keep_until_the_trainer_ends_on_a_faulty_gpu(gpu, pipe, "gpu_is_lost")
    assert "keeper-reset" not in capfd.readouterr().err
