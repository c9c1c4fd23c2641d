"""Messages packed and unpacked, all on one thread.

The C library keeps what a thread has freed for the threads after it that share its arena. Each return of the ranks
brings new threads; packing on them would leave the memory of a large message with every one, 1 MiB a time.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from perseus_ds.coordination.call_thread import CallThread
from perseus_ds.coordination.wire import decode, encode
from perseus_ds.messages import PerseusError

__all__ = ["pack", "unpack"]

_Found = TypeVar("_Found")
_LEVEL = 1  # the fastest: plans are numbers that repeat


def pack(value: Any) -> bytes:
    """Return a value as compressed bytes with a checksum.

    Raises:
        TypeError: See ``encode``.
    """
    return _on_thread(lambda: zlib.compress(encode(value), _LEVEL))


def unpack(data: bytes) -> Any:
    """Return the value of ``pack``.

    Raises:
        PerseusError: What arrived is not what was sent.
    """
    try:
        return _on_thread(lambda: decode(zlib.decompress(data)))
    except (ValueError, zlib.error) as error:
        raise PerseusError("broadcast-damaged") from error


@cache
def _thread() -> CallThread:
    return CallThread("perseus_ds-packing")


def _on_thread(call: Callable[[], _Found]) -> _Found:
    return _thread().submit(call).result()
