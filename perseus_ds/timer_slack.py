"""Linux ends a thread's waits some 50 us late, to save wake-ups; where a clock has to be asked for, they count."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

__all__ = ["end_waits_on_time"]

_SLACK_NS = 1000


def end_waits_on_time() -> None:
    """Let the waits of this thread, those for Python's interpreter too, end a microsecond late at most."""
    with suppress(OSError):  # not every sandbox has it
        Path(f"/proc/{threading.get_native_id()}/timerslack_ns").write_text(str(_SLACK_NS))
