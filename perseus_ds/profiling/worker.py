"""Runs the attribution in a process of its own, so the trainer process keeps its cores and its GIL.

A fit takes from a quarter of a second to two seconds of Python and linear algebra. On a background thread of the
trainer it would delay the thread that launches kernels. A linear-algebra library with one thread per core would take
all cores.
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
from perseus_ds.profiling.energy import Attribution, attribute
from perseus_ds.profiling.spans import Span

__all__ = ["AttributionWorker"]

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_NICENESS = 10


class AttributionWorker:
    """A process that attributes energy. The first call starts it; ``close`` or the end of this process ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def attribute(
        self,
        spans: Sequence[Span],
        samples: Sequence[tuple[float, float]],
        switch_latency_s: float = 0.0,
        readings: Sequence[tuple[float, int]] = (),
    ) -> Attribution:
        """Run ``profiling.energy.attribute`` in the process. Waits for it: call it off the trainer thread.

        Raises:
            PerseusError: The counter hardly moved during the spans.
        """
        question = {
            "spans": list(spans),
            "samples": list(samples),
            "switch_latency_s": switch_latency_s,
            "readings": list(readings),
        }
        try:
            found = self._ask(question)
        except (OSError, EOFError, pickle.UnpicklingError):
            # The process is gone, or never came: do without.
            self.close()
            return attribute(**question)
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
    """Answer requests until the pipe ends."""
    os.nice(_NICENESS)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    guess = None
    while True:
        try:
            question = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            found = attribute(**question, guess=guess)
            guess = found.window if found.verdict.explained else None
        except PerseusError:
            found = None
        pickle.dump(found, answers)
        answers.flush()


if __name__ == "__main__":
    _serve()
