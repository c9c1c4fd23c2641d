"""A counter that moves regularly is read when it is about to move, and all the time where it does not."""

import heapq
from itertools import count
from statistics import fmean

import pytest

from perseus_ds.device.counter_rhythm import CounterRhythm

READ_S, POLL_S, PERIOD_S, MOVES = 0.0025, 0.005, 0.1, 60
"""A read as on an H200, polls as by default, and how often the counter moves."""


class Reader:
    """A process that reads a counter as the watcher does.

    Args:
        phase_s: When the counter first moves.
        learns: Whether it leaves the counter alone between two moves.
        late_s: How much later one update in eight comes, as on an H100. The next one is on time.
    """

    def __init__(self, phase_s: float = 0.0, learns: bool = True, late_s: float = 0.0) -> None:
        self.moves_s = [phase_s + PERIOD_S * n + late_s * (n % 8 == 0) for n in range(1, MOVES + 1)]
        self.learns = learns
        self.rhythm = CounterRhythm()
        self.last_s = 0.0
        self.reads_s: list[float] = []
        self.late_s: list[float] = []

    def is_due(self, now_s: float) -> bool:
        return not self.learns or now_s >= self.rhythm.quiet_until_s

    def reads(self, begin_s: float, end_s: float) -> None:
        self.reads_s.append(begin_s)
        moved = [at_s for at_s in self.moves_s[len(self.late_s) :] if at_s <= begin_s]
        if moved:
            self.rhythm.moved(self.last_s, end_s)
            self.late_s += [end_s - at_s for at_s in moved]
        self.last_s = begin_s


def run(readers: list[Reader]) -> list[float]:
    """Let processes read; one read at a time, in their order. Return how long a request would have to wait, each ms."""
    free_s, waits_s, asked_s = 0.0, [], 0.0
    polls = [(POLL_S * n / len(readers), n) for n in range(len(readers))]
    while (now_s := polls[0][0]) < PERIOD_S * MOVES:
        while asked_s < now_s:
            waits_s.append(max(0.0, free_s - asked_s))
            asked_s += 0.001
        _, number = heapq.heappop(polls)
        after_s = now_s
        if readers[number].is_due(now_s):
            free_s = after_s = max(now_s, free_s) + READ_S
            readers[number].reads(now_s, after_s)
        heapq.heappush(polls, (after_s + POLL_S, number))
    return waits_s[len(waits_s) // 2 :]


@pytest.mark.parametrize("late_s", [0.0, 0.007])
def test_thirteen_reads_a_period_become_four_and_moves_are_seen_as_soon(late_s: float) -> None:
    reader = Reader(late_s=late_s)
    run([reader])
    half_s = PERIOD_S * MOVES / 2
    assert 1.0 < sum(at_s > half_s for at_s in reader.reads_s) / (MOVES / 2) < 4.0
    assert max(reader.late_s) < POLL_S + 2 * READ_S


def test_eight_processes_leave_the_driver_free_for_clock_requests() -> None:
    phases_s = [0.037 * n % PERIOD_S for n in range(8)]
    greedy = run([Reader(phase_s, learns=False) for phase_s in phases_s])
    assert fmean(greedy) > 0.012, "the driver reads all the time, for one process after the other"
    learning = run(readers := [Reader(phase_s) for phase_s in phases_s])
    assert fmean(learning) < 0.003
    assert max(late_s for reader in readers for late_s in reader.late_s[MOVES // 2 :]) < 0.02


@pytest.mark.parametrize("poll_s", [0.06, 1.0])
def test_rare_reads_are_never_left_out(poll_s: float) -> None:
    rhythm = CounterRhythm()
    for number in count(1):
        now_s = poll_s * number
        if now_s // PERIOD_S > (now_s - poll_s) // PERIOD_S:
            rhythm.moved(now_s - poll_s, now_s)
        assert rhythm.quiet_until_s < now_s + 1e-9
        if now_s > PERIOD_S * MOVES:
            break


def test_a_counter_that_gets_faster_is_read_all_the_time_until_its_rhythm_is_known_again() -> None:
    rhythm = CounterRhythm()

    def moves_every(period_s: float, begin_s: float) -> None:
        for number in range(1, 10):
            rhythm.moved(begin_s + number * period_s - 0.004, begin_s + number * period_s + 0.001)

    moves_every(0.1, 0.0)
    assert rhythm.quiet_until_s == pytest.approx(0.896 + 0.095)
    rhythm.moved(0.896, 0.996)  # the first read after the quiet shows it
    assert rhythm.quiet_until_s == 0.0
    moves_every(0.05, 0.996)
    assert rhythm.quiet_until_s == pytest.approx(1.442 + 0.045)
