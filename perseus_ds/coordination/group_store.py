"""The job's key-value store as a group's members use it while they connect: each one's entries in one request.

Gloo asks for every other member's address, one after the other, with three requests each. At 10,240 ranks that
makes millions, all to one server.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch.distributed.distributed_c10d import Store

__all__ = ["GroupStore", "values_of"]


class GroupStore(Store):
    """What a member writes before it first waits goes out as one entry; then it reads those of all members at once.

    Args:
        store: The group's part of the job's key-value store.
        members: Number of members.
        index: This one's place among them.
        timeout_s: Timeout for the slowest member.
    """

    def __init__(self, store: Store, members: int, index: int, timeout_s: float) -> None:
        super().__init__()
        self._store: Any = store  # torch's stubs do not know that values may be bytes
        self._entries = [f"member/{one}" for one in range(members)]
        self._own = self._entries[index]
        self._timeout = timedelta(seconds=timeout_s)
        self._written: dict[str, str] = {}
        self._is_published = False
        self._known: dict[str, bytes] = {}

    def set(self, key: str, value: str | bytes) -> None:
        """Write a value, for all members."""
        if self._is_published:
            self._store.set(key, value)
        else:
            self._written[key] = (value.encode() if isinstance(value, str) else value).hex()

    def publish(self) -> None:
        """Let the others have what was written: where gloo connects lazily, nobody may have waited yet."""
        if not self._is_published:
            self._is_published = True
            self._store.set(self._own, json.dumps(self._written))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait for all members, and for values that one of them writes later."""
        self._meet()
        if late := [key for key in keys if key not in self._known]:
            self._store.wait(late, timeout or self._timeout)

    def get(self, key: str) -> bytes:
        """Return a value, once it is there."""
        self._meet()
        return self._known[key] if key in self._known else self._store.get(key)

    def _meet(self) -> None:
        # Not a cached property: before Python 3.12 all instances share a lock, and members wait for each other.
        if self._known:
            return
        self.publish()
        self._store.wait(self._entries, self._timeout)
        for entry in values_of(self._store, self._entries):
            self._known |= {key: bytes.fromhex(value) for key, value in json.loads(entry).items()}


def values_of(store: Store, keys: Sequence[str]) -> list[bytes]:
    """Return the values of keys that are there, in one request where the store can."""
    asked: Any = store  # torch's stubs do not know all that a store can do
    return asked.multi_get(list(keys)) if asked.has_extended_api() else [store.get(key) for key in keys]
