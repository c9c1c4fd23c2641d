"""Reads files that people or other programs have written: regular ones only, and never without an end."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, TextIO

__all__ = ["open_text", "parse_json", "read_json", "read_text"]

_DIGITS = 20  # of 64 bits, with a sign; a float would overflow from some 300 on


def open_text(path: Path, encoding: str = "utf-8", newline: str | None = None, guarded: bool = False) -> TextIO:
    """Open a regular file for reading.

    A pipe would wait for its writer, and a device may have no end: neither is opened.

    Args:
        path: The file.
        encoding: Of the text.
        newline: As for ``open``.
        guarded: Whether to refuse what any user of the host may have written.

    Raises:
        OSError: There is no such file, it is not a regular one, or it is refused.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if guarded and _anybody_may_write(found, path.parent):
            raise PermissionError(errno.EPERM, "any user of this host may write it", str(path))
    except OSError:
        os.close(handle)
        raise
    return os.fdopen(handle, encoding=encoding, newline=newline)


def read_text(path: Path, guarded: bool = False) -> str:
    """Return the content of a regular file.

    Args:
        path: The file.
        guarded: Whether to refuse what any user of the host may have written.

    Raises:
        OSError: There is no such file, it is not a regular one, or it is refused.
        UnicodeDecodeError: It is not UTF-8.
    """
    with open_text(path, guarded=guarded) as file:
        return file.read()


def parse_json(text: str) -> Any:
    """Return what ``text`` holds.

    Raises:
        ValueError: It is not valid JSON, nested too deeply, or has an integer that no file of ours has.
    """
    try:
        return json.loads(text, parse_int=_integer)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def read_json(path: Path, guarded: bool = False) -> Any:
    """Return the content of a JSON file.

    Args:
        path: The file.
        guarded: Whether to refuse what any user of the host may have written.

    Raises:
        OSError: There is no such file, it is not a regular one, or it is refused.
        ValueError: It is not valid UTF-8 or JSON, or nested too deeply.
    """
    return parse_json(read_text(path, guarded))


def _anybody_may_write(found: os.stat_result, directory: Path) -> bool:
    """Whether any user of the host may write a file, or put another one in its place."""
    if found.st_mode & stat.S_IWOTH:
        return True
    # Where everybody has files, as in /tmp, one's own are one's own.
    return bool(directory.stat().st_mode & stat.S_IWOTH) and found.st_uid not in (0, os.geteuid())
