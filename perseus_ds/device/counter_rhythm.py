"""When an energy counter has to be read again: it moves regularly, and says nothing new between two moves."""

from __future__ import annotations

from collections import deque

__all__ = ["CounterRhythm"]

_KNOWN = 8  # intervals before a counter is left alone
_DOUBT = 1.0  # of an interval at most: else moves come about as fast as reads


class CounterRhythm:
    """Learns how long a counter stands still at least.

    On an H200 a read takes 2.5 ms. Eight processes that read all the time wait for each other, up to 46 ms a read, and
    so would their clock requests.

    Attributes:
        quiet_until_s: The counter does not move before; 0: not known.
    """

    def __init__(self) -> None:
        self._intervals_s: deque[float] = deque(maxlen=_KNOWN)
        self._before_s = self._after_s = 0.0
        self.quiet_until_s = 0.0

    def moved(self, before_s: float, after_s: float) -> None:
        """Take a move of the counter.

        Args:
            before_s: Begin of the last read that did not show it.
            after_s: End of the read that showed it.
        """
        interval_s, doubt_s = before_s - self._after_s, max(after_s - before_s, self._after_s - self._before_s)
        self._before_s, self._after_s = before_s, after_s
        if interval_s < 0.0:  # no read between two moves: it came earlier than expected, or reads are rare
            self._intervals_s.clear()
        elif doubt_s <= _DOUBT * interval_s:
            self._intervals_s.append(interval_s)
        known = len(self._intervals_s) == _KNOWN
        self.quiet_until_s = before_s + min(self._intervals_s) if known else 0.0
