"""The control file: operators and power managers announce stragglers to a running job.

``run_dir/control`` holds one line per straggler, ``straggler PIPELINE SLOWDOWN``. What it says holds for as long
as it says so. A thread of its own reads it: a file system that hangs must not hold up the training.
"""

from __future__ import annotations

import threading
from pathlib import Path

from perseus_ds.console import log
from perseus_ds.messages import user_message

__all__ = ["ControlFile", "parse_control"]

_PERIOD_S = 0.5


class ControlFile:
    """Watches the file.

    Args:
        path: The file; it need not exist.
        pipelines: How many pipelines there are to announce.
    """

    def __init__(self, path: Path, pipelines: int) -> None:
        self._path, self._pipelines = path, pipelines
        self._wanted: dict[int, float] = {}
        self._told: dict[int, float] = {}
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="perseus_ds-control", daemon=True).start()

    def next_announcement(self) -> tuple[int, float] | None:
        """Return a pipeline and its slowdown that has not been told yet; 1.0 when it is over."""
        wanted = self._wanted
        for pipeline in [*wanted, *self._told]:
            slowdown = wanted.get(pipeline, 1.0)
            if self._told.get(pipeline, 1.0) != slowdown:
                self._told[pipeline] = slowdown
                return pipeline, slowdown
        return None

    def close(self) -> None:
        """Watch no more."""
        self._closed.set()

    def _watch(self) -> None:
        seen = ""
        while not self._closed.wait(_PERIOD_S):
            try:
                text = self._path.read_text(encoding="utf-8")
            except FileNotFoundError:
                text = ""
            except (OSError, UnicodeDecodeError) as error:
                text = seen
                log.debug("%s: %s", self._path, error)
            if text != seen:
                self._wanted, wrong = parse_control(text, self._pipelines)
                for number, line in wrong:
                    log.warning("%s", user_message("control-line", file=self._path, row=number, value=line))
            seen = text


def parse_control(text: str, pipelines: int) -> tuple[dict[int, float], list[tuple[int, str]]]:
    """Read a control file.

    Args:
        text: Its content; empty lines and lines that begin with ``#`` say nothing.
        pipelines: How many pipelines there are.

    Returns:
        Slowdown by pipeline, and number and text of each line that is wrong.
    """
    slowdowns: dict[int, float] = {}
    wrong = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            command, pipeline, slowdown = words[0], int(words[1]), float(words[2])
        except (ValueError, IndexError):
            wrong.append((number, line))
            continue
        if command == "straggler" and len(words) == 3 and 0 <= pipeline < pipelines and 1.0 <= slowdown <= 10.0:
            slowdowns[pipeline] = slowdown
        else:
            wrong.append((number, line))
    return slowdowns, wrong
