"""The run directory: files that stay readable after the run."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from perseus_ds.messages import PerseusError

__all__ = ["RunDirectory", "check_writable", "write_atomically"]

_MOST_WAITING = 10_000
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_CLOSING_S = 5.0


def write_atomically(path: Path, text: str) -> None:
    """Replace the content of a file in one step: a reader sees the old or the new content, never half."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


class RunDirectory:
    """Where the coordinator writes, on a thread of its own: a file system that hangs must not hold up the training.

    Writes come to pass in the order asked for. What cannot be written (a full disk) never stops the training: the
    first failure is kept in ``failure``, later writes are still tried.

    Args:
        path: The directory; made when missing.

    Raises:
        PerseusError: It cannot be made or written to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failure: Exception | None = None
        check_writable(path)
        self._writes: queue.Queue[Callable[[], object]] = queue.Queue(_MOST_WAITING)
        self._events: TextIO | None = None
        threading.Thread(target=self._work, name="perseus_ds-writer", daemon=True).start()

    def event(self, kind: str, iteration: int, **values: Any) -> None:
        """Append a line to ``events.jsonl``: wall-clock time, kind, iteration and what belongs to the kind.

        Lines of an earlier run stay; each run begins with a ``start``.
        """
        line = json.dumps({"time": round(time.time(), 3), "event": kind, "iteration": iteration, **values})
        self.later(lambda: self._append(line + "\n"))

    def append_rows(self, name: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Append rows to a CSV file; its first line has the names of the columns.

        Args:
            name: The file's.
            rows: All with the same columns; nobody may change them any more.
        """
        self.later(partial(_append_rows, self.path / name, rows))

    def write_json(self, name: str, data: Any) -> None:
        """Write a JSON file atomically.

        Args:
            name: The file's.
            data: Nobody may change it any more.
        """
        self.later(lambda: write_atomically(self.path / name, _json_text(data)))

    def later(self, write: Callable[[], object]) -> None:
        """Queue a write behind all earlier ones."""
        try:
            self._writes.put_nowait(write)
        except queue.Full:
            self._fail(TimeoutError("the file system does not answer"))

    def flush(self, timeout_s: float = _CLOSING_S) -> bool:
        """Wait until all files are written, or until the timeout; return whether they are."""
        done = threading.Event()
        self.later(done.set)
        if not done.wait(timeout_s):
            self._fail(TimeoutError("the file system does not answer"))
        return done.is_set()

    def _append(self, line: str) -> None:
        if self._events is None:
            file = self.path / "events.jsonl"
            torn = file.is_file() and file.read_bytes()[-1:] not in (b"", b"\n")
            self._events = os.fdopen(os.open(file, _APPEND, 0o644), "a", encoding="utf-8")
            self._events.write("\n" * torn)
        self._events.write(line)
        self._events.flush()

    def _work(self) -> None:
        while True:
            write = self._writes.get()
            try:
                write()
            except Exception as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.failure = self.failure or error


def _json_text(data: Any) -> str:
    """Return readable JSON. Each element of a list is dumped by itself: in between, other threads have their turn."""
    if isinstance(data, list):
        return "[\n" + ",\n".join(map(json.dumps, data)) + "\n]\n"
    return json.dumps(data, indent=1) + "\n"


def _append_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    with os.fdopen(os.open(path, _APPEND, 0o644), "a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        if file.tell() == 0:
            writer.writeheader()
        writer.writerows(rows)


def check_writable(path: Path) -> None:
    """Create the directory and write to it, to find errors before the training starts.

    Raises:
        PerseusError: The directory cannot be created or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise PerseusError("run-dir-not-writable", file="perseus", path=path, detail=error.strerror) from error
