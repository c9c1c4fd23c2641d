"""Where ranks settle what must not be left open: the job's key-value store, which no failure of the bus affects.

After a failure they meet again. Each meeting has a number. It takes place once every rank has come, however late. Any
rank may call all meetings off. When they begin, they attach all together or not at all: a vote.
"""

from __future__ import annotations

import threading
from datetime import timedelta

from torch.distributed.distributed_c10d import PrefixStore, Store

__all__ = ["Vote", "call_off", "meet", "own_connection", "part_of"]

_GO, _OFF = "go", "off "
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 1.0


def own_connection(store: Store) -> Store:
    """Return the store through a connection of its own: the training waits for no request of this thread."""
    clone = getattr(store, "clone", None)  # old versions of torch have none: there the requests only are short
    return store if clone is None else clone()


def part_of(store: Store, number: int) -> Store:
    """Return the part of the store that belongs to one meeting and the bus that it makes."""
    return PrefixStore(f"rejoin/{number}", store)


def meet(store: Store, number: int, ranks: int, closed: threading.Event) -> str | None:
    """Come to a meeting and wait for all others.

    Args:
        store: The job's key-value store.
        number: Of the meeting; every rank comes once.
        ranks: Number of ranks.
        closed: Ends the wait.

    Returns:
        None once all are there; else why the meeting is called off, empty if it was ``closed``.
    """
    part = part_of(store, number)
    if part.add("here", 1) == ranks:
        part.compare_set("verdict", "", _GO)
    pause_s = _FIRST_PAUSE_S
    while not part.check(["verdict"]):
        if closed.wait(pause_s):
            return ""
        pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)
    return _cause(part.get("verdict").decode())


def call_off(store: Store, number: int, cause: str) -> None:
    """Call off a meeting and the next one, unless all have met: then they come to the next one.

    Args:
        store: The job's key-value store.
        number: Of the meeting.
        cause: Told to the ranks that come.
    """
    for one in (number, number + 1):
        part_of(store, one).compare_set("verdict", "", _OFF + cause)


class Vote:
    """All ranks attach, or none does.

    Args:
        store: The job's key-value store.
        attempt: Number of the attempt, from 0.

    Attributes:
        part: The part of the store that belongs to the attempt.
    """

    def __init__(self, store: Store, attempt: int) -> None:
        self.part = PrefixStore(f"attempt/{attempt}", store)

    def rejected(self) -> str | None:
        """Return why a rank has voted against it, None if none has so far."""
        return _cause(self.part.get("verdict").decode()) if self.part.check(["verdict"]) else None

    def reject(self, cause: str) -> str | None:
        """Vote against it; return the cause that counts: the first one. None if all had voted for it before."""
        return _cause(self.part.compare_set("verdict", "", _OFF + cause).decode())

    def accept(self, ranks: int, timeout_s: float) -> str | None:
        """Vote for it, and wait for all others.

        Args:
            ranks: Number of ranks.
            timeout_s: Who waits longer votes against it.

        Returns:
            None if all have voted for it; else the cause that counts.
        """
        if self.part.add("here", 1) == ranks:
            self.part.compare_set("verdict", "", _GO)
        try:
            self.part.wait(["verdict"], timedelta(seconds=timeout_s))
        except RuntimeError:  # the time is over; without the store, the next line fails as well
            return self.reject("not all ranks have attached in time")
        return self.rejected()


def _cause(verdict: str) -> str | None:
    return None if verdict == _GO else verdict.removeprefix(_OFF)
