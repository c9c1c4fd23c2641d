"""What trainer and keeper say to each other: small records over a socket pair that keeps message borders."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["MESSAGE_BYTES", "RESET", "Request", "Sample", "Switch", "decode", "encode"]

RESET = 0
"""In place of a clock in a request: give the clocks back."""

MESSAGE_BYTES = 65536
"""Longest message of a keeper."""

_REQUEST = struct.Struct("<id")
_SAMPLE = struct.Struct("<cdddiq")
_SWITCH = struct.Struct("<cdddiii")
_TEXT = struct.Struct("<cI")


class Request(NamedTuple):
    """A clock that the trainer asks for.

    Attributes:
        mhz: SM clock, or ``RESET``.
        requested_s: When, on the monotonic clock.
    """

    mhz: int
    requested_s: float

    def pack(self) -> bytes:
        """Return the message."""
        return _REQUEST.pack(*self)

    @classmethod
    def unpack(cls, message: bytes) -> Request:
        """Read a message."""
        return cls(*_REQUEST.unpack(message))


class Sample(NamedTuple):
    """The energy counter where it changed, and the GPU's state then.

    Attributes:
        time_s: When it changed: the middle between two readings, on the monotonic clock.
        energy_j: What it shows since, continued over counter restarts.
        uncertainty_s: Half the time between the two readings.
        sm_clock_mhz: SM clock read back.
        throttle_reasons: NVML's bit mask.
    """

    time_s: float
    energy_j: float
    uncertainty_s: float
    sm_clock_mhz: int
    throttle_reasons: int


class Switch(NamedTuple):
    """What became of a clock request.

    Attributes:
        requested_s: When the trainer asked.
        applied_s: When the driver had accepted it.
        reached_s: When the SM clock was first read back as asked for; NaN: not before the next one, or never.
        mhz: Clock asked for.
        actual_mhz: Clock last read back; 0 when none was.
        superseded: Older requests that this one overtook in the pipe.
    """

    requested_s: float
    applied_s: float
    reached_s: float
    mhz: int
    actual_mhz: int
    superseded: int


def encode(record: Sample | Switch | dict[str, Any]) -> bytes:
    """Return a keeper's record as bytes, which may be joined; dictionaries travel as JSON."""
    if isinstance(record, Sample):
        return _SAMPLE.pack(b"S", *record)
    if isinstance(record, Switch):
        return _SWITCH.pack(b"C", *record)
    text = json.dumps(record).encode()
    return _TEXT.pack(b"J", len(text)) + text


def decode(message: bytes) -> Iterator[Sample | Switch | dict[str, Any]]:
    """Read the records of a keeper's message."""
    at = 0
    while at < len(message):
        tag = message[at : at + 1]
        if tag == b"S":
            yield Sample(*_SAMPLE.unpack_from(message, at)[1:])
            at += _SAMPLE.size
        elif tag == b"C":
            yield Switch(*_SWITCH.unpack_from(message, at)[1:])
            at += _SWITCH.size
        else:
            begin = at + _TEXT.size
            at = begin + _TEXT.unpack_from(message, at)[1]
            yield json.loads(message[begin:at])
