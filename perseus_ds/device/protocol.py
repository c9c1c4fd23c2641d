"""Messages between trainer and keeper: small records over a socket pair that preserves message borders."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = [
    "MESSAGE_BYTES",
    "RESET",
    "Pace",
    "PowerReading",
    "Request",
    "Sample",
    "Switch",
    "decode",
    "decode_order",
    "encode",
]

RESET = 0
"""Instead of a clock in a request: reset the clocks."""

MESSAGE_BYTES = 65536
"""Longest message of a keeper."""

_REQUEST = struct.Struct("<idd")
_PACE = struct.Struct("<d")
_SAMPLE = struct.Struct("<cdddiq")
_SWITCH = struct.Struct("<cdddiii?dd")
_POWER = struct.Struct("<cdd")
_TEXT = struct.Struct("<cI")


class Request(NamedTuple):
    """A clock request of the trainer.

    Attributes:
        mhz: SM clock, or ``RESET``.
        requested_s: Time of the request, on the monotonic clock.
        not_before_s: Earliest time to ask the driver, on the monotonic clock; 0: at once.
    """

    mhz: int
    requested_s: float
    not_before_s: float = 0.0

    def pack(self) -> bytes:
        """Return the message."""
        return _REQUEST.pack(*self)

    @classmethod
    def unpack(cls, message: bytes) -> Request:
        """Read a message."""
        return cls(*_REQUEST.unpack(message))


class Pace(NamedTuple):
    """How often the keeper shall read the GPU from now on.

    Attributes:
        poll_s: Interval between two readings.
    """

    poll_s: float

    def pack(self) -> bytes:
        """Return the message."""
        return _PACE.pack(*self)


class Sample(NamedTuple):
    """A change of the energy counter, and the GPU's state at that time.

    Attributes:
        time_s: Time of the change: the middle between two readings, on the monotonic clock.
        energy_j: Value from then on, continued over counter restarts.
        uncertainty_s: Half the time between the two readings.
        sm_clock_mhz: SM clock read back.
        throttle_reasons: Bits of ``Throttle``.
    """

    time_s: float
    energy_j: float
    uncertainty_s: float
    sm_clock_mhz: int
    throttle_reasons: int


class PowerReading(NamedTuple):
    """A renewal of the power that the driver shows.

    Attributes:
        time_s: Its time: the middle between two readings, on the monotonic clock.
        power_w: The power.
    """

    time_s: float
    power_w: float


class Switch(NamedTuple):
    """The result of a clock request.

    Attributes:
        requested_s: Time of the trainer's request.
        applied_s: Time of the driver's acceptance.
        reached_s: When the requested SM clock came: the middle of all times that the readings allow; NaN: never seen.
        mhz: Requested clock.
        actual_mhz: Last clock read back; 0 without any.
        superseded: Older requests cancelled or replaced before they reached the driver.
        certain: Whether the clock that was read back is this request's: another for the same clock may have brought it.
        uncertainty_s: Half the time in which it may have come.
        missing_s: Of a clock that a newer one overtook: until when it had not come, though no newer one was asked for;
            0: not known.
    """

    requested_s: float
    applied_s: float
    reached_s: float
    mhz: int
    actual_mhz: int
    superseded: int
    certain: bool = True
    uncertainty_s: float = 0.0
    missing_s: float = 0.0


def decode_order(message: bytes) -> Request | Pace:
    """Read a message of the trainer."""
    return Pace(*_PACE.unpack(message)) if len(message) == _PACE.size else Request.unpack(message)


def encode(record: Sample | PowerReading | Switch | dict[str, Any]) -> bytes:
    """Return a keeper's record as bytes, which may be concatenated; dictionaries travel as JSON."""
    if isinstance(record, Sample):
        return _SAMPLE.pack(b"S", *record)
    if isinstance(record, PowerReading):
        return _POWER.pack(b"P", *record)
    if isinstance(record, Switch):
        return _SWITCH.pack(b"C", *record)
    text = json.dumps(record).encode()
    return _TEXT.pack(b"J", len(text)) + text


def decode(message: bytes) -> Iterator[Sample | PowerReading | Switch | dict[str, Any]]:
    """Read the records of a keeper's message."""
    at = 0
    while at < len(message):
        tag = message[at : at + 1]
        if tag == b"S":
            yield Sample(*_SAMPLE.unpack_from(message, at)[1:])
            at += _SAMPLE.size
        elif tag == b"P":
            yield PowerReading(*_POWER.unpack_from(message, at)[1:])
            at += _POWER.size
        elif tag == b"C":
            yield Switch(*_SWITCH.unpack_from(message, at)[1:])
            at += _SWITCH.size
        else:
            begin = at + _TEXT.size
            at = begin + _TEXT.unpack_from(message, at)[1]
            yield json.loads(message[begin:at])
