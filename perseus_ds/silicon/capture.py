"""Experiment: does a graph stay whole that is captured while the follower waits for events?"""

from __future__ import annotations

from perseus_ds.silicon.lab import Lab, Load
from perseus_ds.silicon.outcome import Limit, Outcome, judged

__all__ = ["capture"]

NAME = "graph capture"
_CAPTURES, _LASTS_S = 200, 0.005
_MARKS, _APART_S = 8, 0.001


def capture(lab: Lab) -> Outcome:
    """Capture graphs, each while events of another stream come one by one."""
    timer = lab.timer()
    reached: list[float] = []
    broken = 0
    for _ in range(_CAPTURES):
        for _ in range(_MARKS):
            lab.work(Load.SPIN, _APART_S)
            timer.when_reached(timer.mark(followed=True), reached.append)
        before = len(reached)
        broken += not lab.capture(_LASTS_S)
        among = len(reached) - before
        lab.synchronize()
        if among == 0:
            broken += 1  # nothing was waited for meanwhile: it shows nothing
    timer.close()
    expected = _CAPTURES * _MARKS
    return judged(
        NAME,
        {"captures": _CAPTURES, "events": len(reached)},
        Limit(broken == 0, f"{broken} of {_CAPTURES} captures were broken, or no event came meanwhile"),
        Limit(len(reached) == expected, f"the follower told of {len(reached)} of {expected} events"),
    )
