"""What is shown while the training runs: log lines that can be searched, and progress bars on a terminal."""

from __future__ import annotations

import logging
import os
import sys

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["LOG_LEVEL_VARIABLE", "ProgressLine", "log"]

LOG_LEVEL_VARIABLE = "PERSEUS_DS_LOG_LEVEL"
"""Environment variable: DEBUG also shows every rank's own switches."""


def _logger() -> logging.Logger:
    logger = logging.getLogger("perseus_ds")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("[perseus_ds] %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(os.environ.get(LOG_LEVEL_VARIABLE, "INFO").upper())
        logger.propagate = False
    return logger


log = _logger()
"""Everything that perseus_ds says, on standard error."""


class ProgressLine:
    """A progress bar on a terminal, a log line every few steps elsewhere.

    Args:
        title: What is under way.
        total: Steps at most.
        every: Steps from one log line to the next.
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
            from rich.console import Console

            self._bar = Progress(*columns, console=Console(stderr=True), transient=False)
            self._task = self._bar.add_task(title, total=total)
            self._bar.start()

    def step(self) -> None:
        """Go one step on."""
        self.to(self._step + 1)

    def to(self, step: int) -> bool:
        """Go on to a step; steps never go back.

        Args:
            step: From 0; beyond ``total`` the total grows.

        Returns:
            Whether this is one of the steps that are worth a line.
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
        """Finish; what is missing to the total was not needed."""
        if self._bar is not None:
            self._bar.update(self._task, total=max(self._step, 1), completed=self._step)
            self._bar.stop()
            self._bar = None
