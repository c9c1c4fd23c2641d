"""Makes heavy calls in a process of its own, so the trainer process keeps its cores and its GIL.

A fit of the profile takes up to two seconds of Python and linear algebra; the solver's kernels take a second to load.
On a background thread of the trainer they would delay the thread that launches kernels. A linear-algebra library with
one thread per core would take all cores.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import select
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import IO, Any

from perseus_ds import isolated

__all__ = ["Call", "WorkerProcess", "call_here"]

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_NICENESS = 10

Call = Callable[..., Any]
"""Makes a call somewhere: ``WorkerProcess.call``, or ``call_here``."""


def call_here(function: Callable[..., Any], *args: Any, on_progress: Callable[[Any], object] | None = None) -> Any:
    """Make a call in this process, with the arguments of ``WorkerProcess.call``."""
    return function(*args) if on_progress is None else function(*args, on_progress)


class WorkerProcess:
    """A process that makes one call after the other.

    The first call starts it; ``close`` or the end of this process ends it, in the midst of a call too.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._closed = False

    def call(self, function: Callable[..., Any], *args: Any, on_progress: Callable[[Any], object] | None = None) -> Any:
        """Make a call in the process, and wait for its result: not on the trainer thread.

        Without the process, the call is made here.

        Args:
            function: Of a module of this package.
            *args: Its arguments; pickled, as is its result.
            on_progress: Gets what ``function`` passes to its last argument, a callable then.

        Raises:
            Exception: As raised by ``function``.
        """
        with self._turn:
            try:
                error, result, trace = self._ask((function, args, on_progress is not None), on_progress)
            except (OSError, EOFError, pickle.UnpicklingError):
                self._end()
                if self._closed:
                    raise
                return call_here(function, *args, on_progress=on_progress)
        if error is not None:
            raise error from RuntimeError(trace)
        return result

    def close(self) -> None:
        """End the process; a call in progress fails."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _ask(self, question: tuple[Any, ...], on_progress: Callable[[Any], object] | None) -> tuple[Any, ...]:
        """Return the error, the result, and the error's traceback."""
        if self._closed:
            raise EOFError("closed")
        if self._process is None:
            self._process = _started()
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(pickle.dumps(question))
        stdin.flush()
        while True:
            match pickle.load(stdout):
                case ("progress", value):
                    assert on_progress is not None, "asked for"
                    on_progress(value)
                case answer:
                    return answer


def _started() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        isolated.command("perseus_ds.worker_process"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **_ONE_THREAD},
        start_new_session=True,  # Ctrl-C is the trainer's to handle
    )


def _serve() -> None:
    """Answer until the pipe ends."""
    os.nice(_NICENESS)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            function, args, reports = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        progress = partial(_report, answers) if reports else None
        try:
            answer = None, call_here(function, *args, on_progress=progress), ""
        except Exception as error:
            answer = error, None, traceback.format_exc()
        _send(answers, answer)
        args = answer = ()
        _give_back()


def _give_back() -> None:
    """Give memory that calls have freed back to the host, where the C library can: the next call may be far away."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _end_with_parent() -> None:
    """End this process when the pipe's other end is gone, in the midst of a call too: nobody waits for its result."""
    pipe = select.poll()
    pipe.register(sys.stdin.fileno(), 0)  # tells of the end alone
    pipe.poll()
    os._exit(0)


def _report(answers: IO[bytes], value: Any) -> None:
    _send(answers, ("progress", value))


def _send(answers: IO[bytes], message: tuple[Any, ...]) -> None:
    answers.write(pickle.dumps(message))
    answers.flush()


if __name__ == "__main__":
    _serve()
