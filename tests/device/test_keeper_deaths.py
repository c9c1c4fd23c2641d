"""Whatever ends the trainer or the keeper, the clocks end reset. Every death here is a real process's."""

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest
from waiting import wait_for

from perseus_ds.config import DeviceConfig
from perseus_ds.device import clock_keeper
from perseus_ds.device.clock_keeper import ClockKeeper
from perseus_ds.messages import PerseusError

pytestmark = pytest.mark.against_the_clock("processes that start late on a busy host are given up on")

# A shell's background jobs ignore SIGINT, and those of nohup SIGHUP; both hand that on.
TRAINER = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from perseus_ds.config import DeviceConfig
from perseus_ds.device.clock_keeper import ClockKeeper
keeper = ClockKeeper.start(device=DeviceConfig(restore_mhz={restore_mhz}))
keeper.set_mhz(900)
print(keeper.info.pid, flush=True)
sys.stdin.readline()
{end}
"""
SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT, "SIGHUP": signal.SIGHUP}


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture
def train(gpu):
    """Starts a trainer process in a group of its own that has locked the clock."""
    trainers = []

    def train(end="time.sleep(60)", go=True, restore_mhz=None):
        program = [sys.executable, "-c", TRAINER.format(end=end, restore_mhz=restore_mhz)]
        pipe = subprocess.PIPE
        trainer = subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
        trainers.append(trainer)
        keeper_pid = int(trainer.stdout.readline())
        wait_for(gpu.is_locked)
        if go:
            trainer.stdin.write("\n")
            trainer.stdin.flush()
        return trainer, keeper_pid

    yield train
    for trainer in trainers:
        with suppress(ProcessLookupError):
            os.killpg(trainer.pid, signal.SIGKILL)
        _, complaints = trainer.communicate()
        assert "keeper.py" not in complaints, "the keeper leaves quietly"


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("whom", ["trainer", "group"])
def test_a_signal_to_the_trainer_or_its_group(gpu, train, name, whom):
    trainer, keeper_pid = train(go=False)
    (os.killpg if whom == "group" else os.kill)(trainer.pid, SIGNALS[name])
    wait_for(lambda: not gpu.is_locked())
    wait_for(lambda: is_gone(keeper_pid))


def test_after_sigkill_the_clocks_are_reset_within_a_second(gpu, train):
    taken_s = []
    for _ in range(5):
        trainer, _ = train(go=False)
        trainer.kill()
        taken_s.append(wait_for(lambda: not gpu.is_locked()))
    assert statistics.median(taken_s) < 1.0


@pytest.mark.parametrize(
    "end",
    ["raise RuntimeError('loss is NaN')", "sys.exit(3)", "os._exit(1)", "os.abort()", "pass"],
    ids=["exception", "exit", "_exit", "abort", "end of script"],
)
def test_every_end_of_the_script(gpu, train, end):
    _, keeper_pid = train(end)
    wait_for(lambda: not gpu.is_locked())
    wait_for(lambda: is_gone(keeper_pid))


@pytest.mark.parametrize("death", ["trainer", "keeper", "keeper of an idle trainer", "end of script"])
def test_an_operator_s_lock_is_back_whoever_dies(gpu, train, death):
    ends = {"keeper": "keeper.set_mhz(900); time.sleep(0.3); keeper.set_mhz(1200)", "end of script": "pass"}
    trainer, keeper_pid = train(ends.get(death, "time.sleep(60)"), go=False, restore_mhz=1200)
    wait_for(lambda: gpu.sm_clock_mhz() == 900)
    if death != "end of script":
        os.kill(trainer.pid if death == "trainer" else keeper_pid, signal.SIGKILL)
    if death == "keeper of an idle trainer":
        assert not is_gone(trainer.pid)
        trainer.kill()  # nobody is left to notice, so the next start does it
        ClockKeeper.start(device=DeviceConfig(restore_mhz=1200)).close()
    elif death != "trainer":
        trainer.stdin.write("\n")
        trainer.stdin.flush()
    wait_for(lambda: gpu.sm_clock_mhz() == 1200)
    wait_for(lambda: is_gone(keeper_pid))
    assert gpu.is_locked()


def test_a_reset_that_fails_after_the_trainer_is_gone_is_printed(gpu, train):
    trainer, _ = train(go=False)
    gpu.set_fault("unknown")
    trainer.kill()
    line = trainer.stderr.readline()
    assert "perseus-ds reset-clocks" in line
    assert "[driver-failed]" in line


def test_a_forked_data_loader_that_outlives_the_trainer_does_not_keep_the_clocks(gpu, train):
    """The child holds the pipe open: the keeper must see its parent's end by other means."""
    trainer, _ = train("os.fork(); os.write(1, b'%d\\n' % os.getpid()); time.sleep(60)")
    pids = {int(trainer.stdout.readline()) for _ in range(2)}
    loader_pid = (pids - {trainer.pid}).pop()
    trainer.kill()
    trainer.wait()
    wait_for(lambda: not gpu.is_locked())
    assert not is_gone(loader_pid)


def test_a_forked_child_that_ends_does_not_end_the_keeper(gpu, train):
    trainer, keeper_pid = train("if os.fork() == 0: sys.exit(0)\nos.wait(); print('on', flush=True); time.sleep(60)")
    assert trainer.stdout.readline() == "on\n"
    time.sleep(0.3)
    assert gpu.is_locked()
    assert not is_gone(keeper_pid)


def test_ctrl_c_that_the_trainer_survives_leaves_the_keeper_at_work(gpu, train):
    trainer, keeper_pid = train(
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    )
    trainer.stdout.readline()
    os.kill(trainer.pid, signal.SIGINT)
    os.kill(keeper_pid, signal.SIGINT)
    time.sleep(0.3)
    assert gpu.is_locked()
    assert not is_gone(keeper_pid)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_a_keeper_that_is_killed_is_noticed_once_and_training_goes_on(gpu, name):
    keeper = ClockKeeper.start()
    keeper.set_mhz(900)
    wait_for(gpu.is_locked)
    os.kill(keeper.info.pid, SIGNALS[name])
    wait_for(lambda: is_gone(keeper.info.pid))
    notices = []

    def go_on(mhz: int) -> list[str]:
        keeper.set_mhz(mhz)
        notices.extend(keeper.drain().notices)
        return notices

    # The kernel may close a dead process's pipe a moment after the process.
    wait_for(lambda: go_on(1200))
    go_on(900)
    notices += keeper.close().notices
    assert len(notices) == 1
    assert f"(process {keeper.info.pid}) has died" in notices[0]
    assert not keeper.alive
    wait_for(lambda: not gpu.is_locked())


def test_a_keeper_that_hangs_never_holds_the_trainer_up(gpu):
    keeper = ClockKeeper.start()
    keeper.set_mhz(900)
    wait_for(gpu.is_locked)
    os.kill(keeper.info.pid, signal.SIGSTOP)
    begin_s = time.monotonic()
    for number in range(5000):
        keeper.set_mhz(1200 if number % 2 else 900)
    assert time.monotonic() - begin_s < 2.0
    update = keeper.drain()
    assert ["[keeper-full]" in notice for notice in update.notices] == [True]
    keeper.close()
    assert is_gone(keeper.info.pid)
    wait_for(lambda: not gpu.is_locked())


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSTOP"])
def test_a_keeper_that_dies_or_hangs_while_it_calibrates_leaves_no_locked_clock(make_gpus, monkeypatch, name):
    (gpu,) = make_gpus(switch_latency_s=0.2)
    spawned, spawn = [], clock_keeper._spawn

    def spy(*arguments):
        spawned.append(spawn(*arguments))
        return spawned[-1]

    def strike():
        wait_for(gpu.is_locked)
        spawned[0].send_signal(getattr(signal, name))

    monkeypatch.setattr(clock_keeper, "_spawn", spy)
    monkeypatch.setattr(clock_keeper, "_START_TIMEOUT_S", 2.0)
    striker = threading.Thread(target=strike)
    striker.start()
    with pytest.raises(PerseusError, match="keeper-start"):
        ClockKeeper.start(calibrate=True)
    striker.join()
    wait_for(lambda: not gpu.is_locked())


def test_a_second_keeper_on_one_gpu_is_refused_until_the_first_has_died(gpu):
    keeper = ClockKeeper.start()
    keeper.set_mhz(900)
    wait_for(gpu.is_locked)
    with pytest.raises(PerseusError, match=rf"process {keeper.info.pid}\).*\[gpu-taken\]"):
        ClockKeeper.start()
    assert gpu.is_locked()
    ClockKeeper.start(device=DeviceConfig(backend="observe")).close()  # which sets nothing

    os.kill(keeper.info.pid, signal.SIGKILL)
    with_the_claim = ClockKeeper.start()
    assert with_the_claim.info.sets_clocks
    with_the_claim.close()
    keeper.close()
