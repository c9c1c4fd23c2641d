"""Experiment: what is left when a trainer is killed, or ends with an exception inside an iteration?"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from perseus_ds import isolated
from perseus_ds.silicon.lab import Lab
from perseus_ds.silicon.outcome import Limit, Outcome, judged

__all__ = ["gone_s", "judge", "killed"]

NAME = "killed"
_WITHIN_S, _PATIENCE_S, _LOOK_S = 1.0, 10.0, 0.01


def killed(lab: Lab) -> Outcome:
    """Let a trainer die in both ways."""
    before = lab.contexts()
    by_signal_s = _dies(lab, lambda victim: victim.send_signal(signal.SIGKILL))
    by_exception_s = _dies(lab, _end_input)
    until_s = time.monotonic() + _PATIENCE_S
    while lab.contexts() > before and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    return judge(by_signal_s, by_exception_s, lab.contexts() - before)


def judge(by_signal_s: float, by_exception_s: float, contexts: int) -> Outcome:
    """Judge.

    Args:
        by_signal_s: From SIGKILL to the keeper's end.
        by_exception_s: From the trainer's end by an exception to the keeper's.
        contexts: Processes on the GPU more than before.
    """
    figures = {"sigkill_s": by_signal_s, "exception_s": by_exception_s, "contexts_left": contexts}
    return judged(
        NAME,
        figures,
        Limit(by_signal_s < _WITHIN_S, f"the keeper outlived SIGKILL by {by_signal_s:.1f} s, limit 1 s"),
        Limit(by_exception_s < _WITHIN_S, f"the keeper outlived an exception by {by_exception_s:.1f} s, limit 1 s"),
        Limit(contexts <= 0, f"{contexts} contexts are left on the GPU"),
    )


def _end_input(victim: subprocess.Popen[bytes]) -> None:
    assert victim.stdin is not None
    victim.stdin.close()


def _dies(lab: Lab, end: Callable[[subprocess.Popen[bytes]], None]) -> float:
    """Start a trainer, end it, and return how long its keeper outlives it."""
    pipe = subprocess.PIPE
    victim = subprocess.Popen(
        isolated.command("perseus_ds.silicon.victim"),
        env={**os.environ, **lab.environment},
        stdin=pipe,
        stdout=pipe,
        stderr=subprocess.DEVNULL,
    )
    assert victim.stdout is not None
    try:
        keeper = int(victim.stdout.readline())
        end(victim)
        victim.wait(_PATIENCE_S)
        return gone_s(keeper, _PATIENCE_S)
    finally:
        victim.kill()
        victim.wait()


def gone_s(pid: int, patience_s: float) -> float:
    """Wait for the end of a process, which may not be a child, and return how long it took; infinite if it lasts."""
    begin_s = time.monotonic()
    while (waited_s := time.monotonic() - begin_s) < patience_s:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return waited_s
        if state in "ZX":  # nobody has looked after its end yet
            return waited_s
        time.sleep(_LOOK_S)
    return math.inf
