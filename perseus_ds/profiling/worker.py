"""Attribution in a process of its own, so that the trainer's process keeps its cores and its GIL.

A fit takes a tenth of a second of Python and linear algebra. On the trainer's background thread it would hold up
the thread that launches kernels, and a linear-algebra library that starts a thread per core would take them all.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from perseus_ds import isolated
from perseus_ds.messages import PerseusError
from perseus_ds.profiling.energy import Attribution, Span, attribute

__all__ = ["AttributionWorker"]

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_NICENESS = 10


class AttributionWorker:
    """A process that attributes energy; started by the first call, ended by ``close`` or with this process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def attribute(
        self, spans: Sequence[Span], samples: Sequence[tuple[float, float]], switch_latency_s: float = 0.0
    ) -> Attribution:
        """Do as ``profiling.energy.attribute``. Waits for the process: call it off the trainer's thread.

        Raises:
            PerseusError: The counter hardly moved while the spans ran.
        """
        try:
            found = self._ask((list(spans), list(samples), switch_latency_s))
        except (OSError, EOFError, pickle.UnpicklingError):
            # The process is gone, or never came: do without.
            self.close()
            return attribute(spans, samples, switch_latency_s)
        if found is None:
            instructions = sum(span.key is not None for span in spans)
            raise PerseusError("profiling-no-energy", updates=len(samples), instructions=instructions)
        return found

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _ask(self, question: Any) -> Attribution | None:
        if self._process is None:
            self._process = subprocess.Popen(
                isolated.command("perseus_ds.profiling.worker"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **_ONE_THREAD},
                start_new_session=True,  # Ctrl-C is the trainer's to handle
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump(question, self._process.stdin)
        self._process.stdin.flush()
        return pickle.load(self._process.stdout)


def _serve() -> None:
    """Answer questions until the pipe ends."""
    os.nice(_NICENESS)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while True:
        try:
            spans, samples, switch_latency_s = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            found = attribute(spans, samples, switch_latency_s)
        except PerseusError:
            found = None
        pickle.dump(found, answers)
        answers.flush()


if __name__ == "__main__":
    _serve()
