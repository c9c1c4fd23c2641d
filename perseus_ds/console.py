"""Output during training: searchable log lines, and progress bars on a terminal."""

from __future__ import annotations

import logging
import os
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from perseus_ds.ranks import tells_for_all

__all__ = ["ProgressLine", "log", "say_why_it_ends", "show_log"]

_LOG_LEVEL_VARIABLE = "PERSEUS_DS_LOG_LEVEL"
"""Environment variable: DEBUG also shows every rank's own switches."""

_RANK_0_TELLS_WITHIN_S = 10.0

log = logging.getLogger("perseus_ds")
"""Everything that perseus_ds says. The program decides where it goes until ``show_log`` is called."""

log.addHandler(logging.NullHandler())  # without one, logging prints warnings of its own accord


def show_log() -> None:
    """Write the log to standard error, unless the program already handles the logger ``perseus_ds``.

    ``perseus_ds.install`` and the commands call it; importing the package changes no logging.
    """
    if any(not isinstance(handler, logging.NullHandler) for handler in log.handlers):
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("[perseus_ds] %(message)s"))
    log.addHandler(handler)
    log.setLevel(os.environ.get(_LOG_LEVEL_VARIABLE, "INFO").upper())
    log.propagate = False  # frameworks configure the root logger: each line would appear twice


def say_why_it_ends(error: Exception) -> None:
    """Write the error that ends the program to standard error: one rank for all that meet it.

    A launcher ends all ranks when the first one ends. The others wait, so that rank 0 comes to tell; one that is still
    there afterwards met an error of its own and tells it.

    Args:
        error: What every rank meets, or this one alone (a file that is missing on one node).
    """
    if not tells_for_all():
        time.sleep(_RANK_0_TELLS_WITHIN_S)
    print(f"perseus_ds: {error}", file=sys.stderr, flush=True)


class ProgressLine:
    """A progress bar on a terminal, a log line every few steps elsewhere.

    Args:
        title: Name of the work.
        total: Largest number of steps.
        every: Steps between two log lines.
    """

    def __init__(self, title: str, total: int, every: int = 5) -> None:
        self._title, self._total, self._every, self._step = title, total, every, 0
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            columns = (
                TextColumn("[perseus_ds] {task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=False)
            self._task = self._bar.add_task(title, total=total)
            self._bar.start()

    def step(self) -> None:
        """Advance by one step."""
        self.to(self._step + 1)

    def to(self, step: int) -> bool:
        """Advance to a step; steps never go back.

        Args:
            step: From 0; a step beyond ``total`` raises the total.

        Returns:
            Whether this step deserves a line.
        """
        before, self._step = self._step, step
        self._total = max(self._total, step)
        worth = before == 0 or step // self._every > before // self._every
        if self._bar is not None:
            self._bar.update(self._task, total=self._total, completed=step)
        elif worth:
            done = round(20 * step / self._total)
            log.info("%s [%s] %d/%d", self._title, "#" * done + "." * (20 - done), step, self._total)
        return worth

    def close(self) -> None:
        """Finish; the remaining steps were not needed."""
        if self._bar is not None:
            self._bar.update(self._task, total=max(self._step, 1), completed=self._step)
            self._bar.stop()
            self._bar = None
