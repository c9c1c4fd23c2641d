"""Errors sent to the ranks that wait for a value."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perseus_ds.messages import PerseusError, RemoteError, one_line

__all__ = ["Failure", "attempt", "concerns_all", "value_of"]

_OF_ALL = ("failed-elsewhere", "round-overdue", "told-to-end")


@dataclass(frozen=True)
class Failure:
    """A sendable error.

    Attributes:
        line: Message.
        traceback: Traceback.
    """

    line: str
    traceback: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Return the sendable form of an error."""
        return cls(one_line(error), "".join(traceback.format_exception(error)))


def attempt(make: Callable[[], Any]) -> Any:
    """Return the result of ``make``, or its failure."""
    try:
        return make()
    except Exception as error:
        return Failure.of(error)


def value_of(sent: Any) -> Any:
    """Return the value sent by another rank.

    Raises:
        RemoteError: It was a failure.
    """
    if isinstance(sent, Failure):
        raise RemoteError(sent.line) from RuntimeError(sent.traceback)
    return sent


def concerns_all(error: Exception) -> bool:
    """Whether all ranks meet this error: one of them tells the user, and it says nothing about this rank."""
    return isinstance(error, RemoteError) or (isinstance(error, PerseusError) and error.code in _OF_ALL)
