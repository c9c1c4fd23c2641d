"""The messages of perseus_ds to its user: the catalogue, and the errors that carry an entry."""

from __future__ import annotations

from typing import Any

from perseus_ds.messages.catalogue import CATALOGUE
from perseus_ds.messages.entry import UserMessage

__all__ = ["CATALOGUE", "PerseusError", "RemoteError", "UserMessage", "one_line", "user_message"]


_MOST = 800  # characters


def user_message(code: str, **values: object) -> str:
    """Return the one-line text of a catalogue entry.

    Args:
        code: Key of ``CATALOGUE``.
        **values: Values of the entry's placeholders.

    Returns:
        ``"<what is wrong>; <remedy> [<code>]"`` on one line.
    """
    entry = CATALOGUE[code]
    line = f"{_shortened(entry.text.format(**values))}; {_shortened(entry.remedy.format(**values))} [{code}]"
    return " ".join(line.split())


def _shortened(text: str) -> str:
    """Return a text without its middle, if what a file holds has made it long."""
    return text if len(text) <= _MOST else f"{text[: _MOST // 2]} … {text[-_MOST // 2 :]}"


class PerseusError(Exception):
    """An error with a remedy for the user. ``str()`` of it is one line.

    Attributes:
        code: Key of ``CATALOGUE``.
    """

    def __init__(self, code: str, **values: object) -> None:
        super().__init__(user_message(code, **values))
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.code, str(self))


def _again(code: str, line: str) -> PerseusError:
    """Return an error that comes from another process."""
    error = PerseusError.__new__(PerseusError, line)
    error.code = code
    return error


class RemoteError(Exception):
    """An error of another rank; its cause holds the traceback from there."""


def one_line(error: BaseException) -> str:
    """Return an error on one line: a ``PerseusError`` as it is, any other with its type."""
    text = str(error) if isinstance(error, PerseusError | RemoteError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())
