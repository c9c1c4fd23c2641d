"""Asks for each instruction's clock ahead, so that it comes when the device begins the instruction.

A plan may want it a little earlier or later (``frontier.aims``). A clock arrives one switch latency after its request.
The begins of earlier iterations with the same clocks tell when the next instructions begin, waits included; before
there are any, the plan tells. At each begin, also the iteration's, requests go to the clock keeper for everything that
it has to ask for before the next begin; the keeper asks at the right moment. Where nothing is known of the begins, a
clock is asked for as soon as the device has ended the instruction before.

The host may be many instructions ahead. Every call therefore carries the token of the iteration that the device, not
the host, has reached. An iteration's clocks hold from its first instruction to its last, wherever the host is.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable

from perseus_ds.pipeline.clocks import UNLOCKED
from perseus_ds.profiling.recorder import IterationToken, Rest

__all__ = ["FrequencyController"]

_APART_S = 2e-4  # a request due at the same time as another would replace it


class FrequencyController:
    """Turns the device's progress into clock requests. One thread calls it, in the device's order.

    Args:
        set_mhz: Requests a clock or ``UNLOCKED`` for a time on ``time.monotonic()``, 0 for now, and returns at once
            (the clock keeper's). A request cancels those due at its time or later.
        latency_s: Time from a request to a clock in MHz.
        now_s: The clock of all times.
    """

    def __init__(
        self,
        set_mhz: Callable[[int, float], None],
        latency_s: Callable[[int], float],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._set_mhz = set_mhz
        self._latency_s = latency_s
        self._now_s = now_s
        self._last_mhz = UNLOCKED
        self._due_s: dict[int, float] = {}

    def begin(self, token: IterationToken, at_s: float) -> None:
        """The device has reached the begin of an iteration; an evaluation keeps one clock.

        Clocks may have to be asked for in the wait before the first instruction.
        """
        self._due_s = {}
        until_s, now_s = at_s + token.rests_until_s, self._now_s()
        if token.rests_until_s and until_s > now_s + _APART_S:
            self._rest(token, until_s)
        else:
            self._ask_now(token, 0)
            until_s = now_s
        if token.expects(0) and not token.clocks.asks_early:
            self._ask_ahead(token, -1, at_s, until_s)

    def instruction_began(self, token: IterationToken, index: int, at_s: float) -> None:
        """Ask for the clocks of the instructions to come, as far as it has to be done before the next one begins."""
        if index in self._due_s and self._due_s[index] > self._now_s():  # it begins earlier than expected
            self._ask_now(token, index)
        if token.expects(index + 1):
            self._ask_ahead(token, index, at_s - token.expected_begins_s[index], self._now_s())

    def instruction_ended(self, token: IterationToken, index: int, _at_s: float) -> None:
        """Ask for the next clock, which has not been asked for ahead.

        After the last instruction it is the most likely first clock of the next iteration.
        """
        self._ask_now(token, index + 1)

    def _rest(self, token: IterationToken, until_s: float) -> None:
        """Request a low clock, and the first instruction's for later."""
        token.rest = Rest(self._now_s(), token.clocks.rest_mhz)
        self._set_mhz(token.clocks.rest_mhz, 0.0)
        self._last_mhz = token.clocks.requested(0)
        self._due_s[0] = token.requested_s[0] = until_s
        self._set_mhz(self._last_mhz, until_s)

    def _ask_now(self, token: IterationToken, index: int) -> None:
        """Request the clock of an instruction; repeat an equal request only after a refusal."""
        mhz, now_s = token.clocks.requested(index), self._now_s()
        if mhz != self._last_mhz or self._due_s.get(index, 0.0) > now_s:
            self._last_mhz = mhz
            self._due_s[index] = now_s
            token.requested_s[index] = now_s
        self._set_mhz(mhz, 0.0)

    def _ask_ahead(self, token: IterationToken, index: int, shift_s: float, after_s: float) -> None:
        """Request the clocks after an instruction that begins ``shift_s`` after its expected begin.

        Args:
            token: Of the iteration.
            index: The instruction; -1: the iteration's begin.
            shift_s: What to add to expected begins.
            after_s: No request is due before.
        """
        clocks, begins_s, now_s = token.clocks, token.expected_begins_s, self._now_s()
        next_s = shift_s + begins_s[index + 1]
        changes = clocks.changes
        for change in changes[bisect_right(changes, index) :]:
            mhz = clocks.requested(change)
            arrives_s = shift_s + begins_s[change] + clocks.aim_s(change)
            due_s = max(arrives_s - self._latency_s(mhz), after_s + _APART_S)
            if change > index + 1 and due_s >= next_s:
                return
            after_s = due_s
            if self._due_s.get(change, now_s) < now_s:
                continue  # it is on its way
            self._due_s[change] = due_s
            self._last_mhz = mhz
            token.requested_s[change] = due_s
            self._set_mhz(mhz, due_s)
