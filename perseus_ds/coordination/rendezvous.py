"""Where ranks meet again after a failure: the job's key-value store, which no failure of the bus affects.

Each meeting has a number. It takes place once every rank has come, however late. Any rank may call all meetings off.
"""

from __future__ import annotations

import threading

from torch.distributed.distributed_c10d import PrefixStore, Store

__all__ = ["call_off", "meet", "own_connection", "part_of"]

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
    verdict = part.get("verdict").decode()
    return None if verdict == _GO else verdict.removeprefix(_OFF)


def call_off(store: Store, number: int, cause: str) -> None:
    """Call off a meeting and the next one, unless all have met: then they come to the next one.

    Args:
        store: The job's key-value store.
        number: Of the meeting.
        cause: Told to the ranks that come.
    """
    for one in (number, number + 1):
        part_of(store, one).compare_set("verdict", "", _OFF + cause)
