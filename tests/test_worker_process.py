"""Heavy calls in a process of its own: its answers, its errors, its end, and the trainer's thread meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from perseus_ds.messages import PerseusError
from perseus_ds.worker_process import WorkerProcess, call_here


def where(*_: object) -> int:
    return os.getpid()


def counted(last: int, on_progress: Callable[[int], object]) -> str:
    for number in range(last):
        on_progress(number)
    return "done"


def fails(error: Exception) -> None:
    raise error


def fragments(kept: list[bytes] = []) -> None:  # noqa: B006
    """Use 60 MB for a moment, and keep the newest part of it."""
    kept.append([bytes(2_000) for _ in range(30_000)][-1])


def memory_mb() -> float:
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def busy(seconds: float) -> None:
    """Hold the GIL as Python does that never waits."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pass


@pytest.fixture
def worker(monkeypatch) -> Iterator[WorkerProcess]:
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))  # its functions are pickled by name
    worker = WorkerProcess()
    yield worker
    worker.close()


def test_every_call_is_made_in_one_and_the_same_other_process(worker) -> None:
    first, second = worker.call(where), worker.call(where, [1, 2])

    assert first == second != os.getpid()


def test_what_a_call_has_freed_goes_back_to_the_host(worker) -> None:
    before_mb = worker.call(memory_mb)

    worker.call(fragments)

    assert worker.call(memory_mb) - before_mb < 10.0


@pytest.mark.parametrize("elsewhere", [True, False])
def test_progress_arrives_in_order_before_the_result(worker, elsewhere) -> None:
    told: list[int] = []
    call = worker.call if elsewhere else call_here

    assert call(counted, 3, on_progress=told.append) == "done"
    assert told == [0, 1, 2]


def test_an_error_is_raised_here_and_tells_where_it_was_raised(worker) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        worker.call(fails, ZeroDivisionError("made to fail"))
    assert "in fails\n    raise error" in str(raised.value.__cause__)

    error = PerseusError("profiling-no-energy", updates=2, instructions=5)
    with pytest.raises(PerseusError, match="2 updates") as again:
        worker.call(fails, error)
    assert (again.value.code, str(again.value)) == (error.code, str(error))
    assert worker.call(where) != os.getpid(), "it goes on"


def test_what_cannot_be_sent_is_an_error_and_the_process_goes_on(worker) -> None:
    with pytest.raises((TypeError, AttributeError)):
        worker.call(where, threading.Lock())
    assert worker.call(where) != os.getpid()


def test_without_its_process_a_call_is_made_here_and_the_next_one_in_a_new_process(worker) -> None:
    first = worker.call(where)
    os.kill(first, signal.SIGKILL)

    assert worker.call(where) == os.getpid()
    assert worker.call(where) not in (first, os.getpid())


def test_a_call_in_progress_fails_when_the_process_is_closed_and_is_not_made_here(worker) -> None:
    worker.call(where)
    failed: list[type] = []

    def wait() -> None:
        try:
            worker.call(busy, 60.0)
        except EOFError as error:
            failed.append(type(error))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    time.sleep(0.2)
    worker.close()
    thread.join(5.0)
    assert failed == [EOFError]
    with pytest.raises(EOFError):
        worker.call(where)


def test_a_thread_of_this_process_goes_on_meanwhile(worker) -> None:
    def share_of_trainer(call: Callable[..., object]) -> float:
        """The CPU time of a thread that runs Python alone, of its and the caller's: the same on a busy host."""
        trainer_s = 0.2

        def trains() -> None:
            while time.thread_time() < trainer_s:
                sum(range(10_000))

        thread = threading.Thread(target=trains)
        begin_s = time.thread_time()
        thread.start()
        while thread.is_alive():
            call(busy, 0.05)
        return trainer_s / (trainer_s + time.thread_time() - begin_s)

    worker.call(where)

    assert share_of_trainer(worker.call) > 0.9
    assert share_of_trainer(call_here) < 0.8, "the same call costs it half of the GIL here"


def test_the_process_ends_with_its_parent_in_the_midst_of_a_call() -> None:
    begin_s = time.monotonic()
    parent = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, signal, threading, time\n"
            "from perseus_ds.worker_process import WorkerProcess\n"
            "worker = WorkerProcess()\n"
            "print(worker.call(os.getpid), flush=True)\n"
            "threading.Thread(target=worker.call, args=(time.sleep, 60)).start()\n"
            "time.sleep(0.5)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    # The worker's stderr is the pipe that run() reads to its end: it has returned, so the worker is gone.
    assert parent.returncode == -signal.SIGKILL
    assert int(parent.stdout) > 0
    assert "Traceback" not in parent.stderr
    assert time.monotonic() - begin_s < 30.0, "the call would take a minute"
