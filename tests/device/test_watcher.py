"""What the watcher makes of a counter and a clock, on a time of its own."""

import itertools
import math
import socket
from types import SimpleNamespace

import pytest
from fake_gpu import FakeGpu, refusal

from perseus_ds.device import watcher as module
from perseus_ds.device.calibration import Calibration
from perseus_ds.device.driver import NotSupported, Throttle
from perseus_ds.device.protocol import MESSAGE_BYTES, RESET, PowerReading, Sample, Switch, decode
from perseus_ds.device.send_queue import SendQueue
from perseus_ds.device.watcher import Watcher

POLL_S = 0.01


class Watched(FakeGpu):
    """A GPU that is watched for a number of looks; each reading of the counter takes 2 ms."""

    def __init__(self, calibration: Calibration, monkeypatch) -> None:
        super().__init__()
        self.now_s = 100.0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self._pipe, self._ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self.queue = SendQueue(self._pipe)
        self.watcher = Watcher(self, self.queue, calibration, POLL_S)

    def energy_j(self) -> float:
        self.now_s += 0.002
        return super().energy_j()

    def look(self, looks: int = 1, then=lambda number: None) -> list:
        """Look a number of times, and return what the trainer is sent."""
        count = iter(range(looks))

        def wait(poll_s: float) -> bool:
            self.now_s += poll_s
            number = next(count, None)
            if number is not None:
                then(number)
            return number is None

        self.watcher.watch(SimpleNamespace(wait=wait))
        self.queue.flush()
        return self.received()

    def received(self) -> list:
        records: list = []
        while True:
            try:
                records += decode(self._ours.recv(MESSAGE_BYTES))
            except BlockingIOError:
                return records


@pytest.fixture
def gpu(monkeypatch):
    return Watched(Calibration(), monkeypatch)


def notices(records) -> list[str]:
    return [record["notice"].rpartition(" ")[2] for record in records if isinstance(record, dict)]


def test_a_sample_lies_in_the_middle_of_the_two_looks_between_which_the_counter_moved(gpu):
    def moves(number):
        gpu.counter_j = (5.0, 5.0, 7.0, 7.0, 11.0)[number]

    gpu.reasons = Throttle.SOFTWARE_POWER_CAP
    first, second = gpu.look(5, moves)
    # Looks begin at 100.010, 100.022, 100.034, 100.046, 100.058.
    assert first == Sample(pytest.approx(100.029), 7.0, pytest.approx(0.007), 1410, int(Throttle.SOFTWARE_POWER_CAP))
    assert second == Sample(pytest.approx(100.053), 11.0, pytest.approx(0.007), 1410, 1)


def test_between_rare_looks_the_latest_move_lies_within_the_last_period(monkeypatch):
    gpu = Watched(Calibration((), counter_period_s=0.1), monkeypatch)
    gpu.watcher.poll_s = 1.0

    def moves(number):
        gpu.counter_j = 7.0 * number

    gpu.look(2, moves)
    (sample,) = gpu.look(1, lambda number: moves(2))
    assert (sample.time_s, sample.uncertainty_s) == (pytest.approx(gpu.now_s - 1.0 - 0.05), pytest.approx(0.05))


def test_a_counter_that_moves_regularly_is_read_when_it_is_about_to_move(monkeypatch):
    gpu, reads_s = Watched(Calibration((), counter_period_s=0.1), monkeypatch), []
    gpu.watcher.poll_s = 0.005

    def read() -> float:
        reads_s.append(gpu.now_s)
        gpu.counter_j = gpu.now_s // 0.1
        return Watched.energy_j(gpu)

    monkeypatch.setattr(gpu, "energy_j", read)
    samples = gpu.look(round(3.0 / 0.005))
    assert sum(at_s > 101.0 for at_s in reads_s) < 4 * len([one for one in samples if one.time_s > 101.0])
    assert max(one.uncertainty_s for one in samples) < 0.005


class Showing(Watched):
    """Shows another power every 100 ms. A look lasts 5 ms, and each reading 2 ms."""

    def __init__(self, monkeypatch) -> None:
        super().__init__(Calibration((), counter_period_s=0.1, readings_period_s=0.1), monkeypatch)
        self.watcher.poll_s = 0.005
        self.reads = 0

    def power_w(self) -> float:
        self.now_s += 0.002
        self.reads += 1
        return 100.0 + self.now_s // 0.1


def test_a_power_lies_in_the_middle_of_the_two_looks_between_which_it_was_renewed(monkeypatch):
    gpu = Showing(monkeypatch)
    shown = [one for one in gpu.look(400) if isinstance(one, PowerReading)]
    assert len(shown) > 20
    for one in shown:
        assert one.time_s == pytest.approx(0.1 * round(one.time_s / 0.1), abs=0.008)
        assert one.power_w == 100.0 + round(one.time_s / 0.1)
    assert gpu.reads < 6 * len(shown), "it is read when it is about to be renewed"


def test_rare_looks_do_not_ask_for_the_power(monkeypatch):
    gpu = Showing(monkeypatch)
    gpu.watcher.poll_s = 0.05
    gpu.look(100)
    assert gpu.reads == 0


def test_who_cannot_show_its_power_is_asked_once(monkeypatch):
    gpu, asked = Showing(monkeypatch), []

    def refuses() -> float:
        asked.append(gpu.now_s)
        raise refusal(NotSupported)

    monkeypatch.setattr(gpu, "power_w", refuses)
    assert notices(gpu.look(10)) == []
    assert len(asked) == 1


def test_a_counter_that_went_back_goes_on_from_where_it_was(gpu):
    def moves(number):
        gpu.counter_j = (10.0, 12.0, 3.0, 4.0, 1.0)[number]

    records = gpu.look(5, moves)
    assert [record.energy_j for record in records if isinstance(record, Sample)] == [12.0, 15.0, 16.0, 17.0]
    assert notices(records) == ["[counter-restarted]"]
    assert "9.0 J" in next(record["notice"] for record in records if isinstance(record, dict))


@pytest.mark.parametrize(("period_s", "limit_s"), [(0.05, 3.0), (0.5, 5.0)])
def test_a_counter_that_stands_still_is_told_after_three_seconds_or_ten_periods(monkeypatch, period_s, limit_s):
    gpu = Watched(Calibration((), period_s), monkeypatch)
    looks = round(limit_s / (POLL_S + 0.002))
    assert gpu.look(looks - 2) == []
    assert notices(gpu.look(10)) == ["[counter-frozen]"]


def test_a_counter_that_moved_just_now_is_not_frozen(gpu):
    def moves(number):
        gpu.counter_j = 1.0 + (number > 200)

    assert notices(gpu.look(400, moves)) == []


def test_a_sample_without_a_readable_clock_is_a_sample(gpu):
    def moves(number):
        gpu.counter_j = float(number)
        gpu.errors = [refusal(NotSupported)]

    records = gpu.look(3, moves)
    samples = [record for record in records if isinstance(record, Sample)]
    assert [(sample.sm_clock_mhz, sample.throttle_reasons) for sample in samples] == [(0, 0), (0, 0)]
    assert notices(records) == ["[gpu-not-supported]"]


def test_a_clock_is_seen_when_it_is_read_back_once(gpu):
    gpu.watcher.expect(Switch(99.0, 100.0, math.nan, 900, 0, 2))

    def reaches(number):
        gpu.actual_mhz = 900 if number >= 3 else 1200

    (seen,) = gpu.look(8, reaches)
    assert seen == Switch(99.0, 100.0, pytest.approx(100.042), 900, 900, 2, uncertainty_s=pytest.approx(0.006))


def test_an_old_reading_tells_that_a_clock_came_within_the_time_since_readings_were_renewed(monkeypatch):
    gpu = Watched(Calibration((0.02,), 0.1, readings_period_s=0.1), monkeypatch)
    gpu.watcher.expect(Switch(99.0, 100.0, math.nan, 900, 0, 0))

    def reaches(number):
        gpu.actual_mhz = 900 if number >= 12 else 1410

    (seen,) = gpu.look(20, reaches)
    assert (seen.actual_mhz, seen.certain) == (900, True)
    # Seen at 100.156, and not at 100.144; what that look showed may have been of 100.044.
    assert seen.reached_s - seen.uncertainty_s == pytest.approx(100.044)
    assert seen.reached_s + seen.uncertainty_s == pytest.approx(100.156)


@pytest.mark.parametrize(("latency_s", "limit_s"), [(0.01, 0.5), (0.2, 1.0)])
def test_a_clock_that_does_not_come_is_told_with_its_reason_after_a_while(monkeypatch, latency_s, limit_s):
    gpu = Watched(Calibration((latency_s,), 0.05), monkeypatch)
    gpu.actual_mhz, gpu.reasons = 1050, Throttle.HARDWARE_THERMAL_SLOWDOWN
    gpu.watcher.expect(Switch(99.0, 100.0, math.nan, 1200, 0, 0))
    looks = math.floor(limit_s / (POLL_S + 0.002))
    assert gpu.look(looks) == []
    switch, notice = sorted(gpu.look(3), key=lambda record: isinstance(record, dict))
    assert math.isnan(switch.reached_s)
    assert (switch.mhz, switch.actual_mhz) == (1200, 1050)
    assert "1200 MHz, runs at 1050 MHz: hardware thermal slowdown" in notice["notice"]
    assert "Fake GPU GPU-fake" in notice["notice"]
    assert gpu.look(100) == [], "it is looked for no longer"


def test_a_clock_that_comes_after_a_newer_request_is_seen_too(gpu):
    gpu.actual_mhz = 1200
    gpu.watcher.expect(Switch(1.0, 99.0, math.nan, 1200, 0, 0))
    assert [one.mhz for one in gpu.look(1)] == [1200]
    for number, mhz in enumerate((900, 1200, 600)):
        gpu.watcher.expect(Switch(2.0, 100.01 + 0.02 * number, math.nan, mhz, 0, 0))

    def comes(number):
        gpu.actual_mhz = (1200, 1200, 1200, 1200, 900, 900, 1200, 600)[number]

    seen = gpu.look(8, comes)
    assert [one.mhz for one in seen] == [900, 1200, 600]
    assert [one.reached_s - one.applied_s for one in seen] == pytest.approx([0.066, 0.07, 0.062])


def comes_late(gpu) -> list:
    """900 and 1200 MHz in turn, every 0.1 s, each 0.05 s later; the first 0.22 s late, and those behind it with it."""
    shows = [(0.0, 1200), (0.27, 900), (0.35, 1200), (0.45, 900), (0.55, 1200)]
    asked = iter([(0.0, 900), (0.1, 1200), (0.2, 900), (0.3, 1200), (0.4, 900), (0.5, 1200)])
    wanted, begin_s, seen = [next(asked)], gpu.now_s, []
    while gpu.now_s - begin_s < 0.62:
        if wanted[-1] and gpu.now_s - begin_s >= wanted[-1][0]:
            gpu.watcher.expect(Switch(1.0, begin_s + wanted[-1][0], math.nan, wanted[-1][1], 0, 0))
            wanted.append(next(asked, None))
        gpu.actual_mhz = [mhz for from_s, mhz in shows if gpu.now_s - begin_s >= from_s][-1]
        seen += gpu.look(1)
    return seen


def test_of_clocks_asked_for_in_turn_none_is_timed_by_another_s_coming(gpu):
    gpu.actual_mhz = 600
    for mhz in (1200, 900, 1200):  # each comes in 0.05 s: known from then on
        gpu.watcher.expect(Switch(1.0, gpu.now_s, math.nan, mhz, 0, 0))
        gpu.look(3)
        gpu.actual_mhz = mhz
        assert [one.certain for one in gpu.look(3)] == [True]
    seen = [one for one in comes_late(gpu) if not math.isnan(one.reached_s)]
    assert len(seen) >= 4
    for one in seen:
        assert not one.certain or one.reached_s - one.applied_s == pytest.approx(0.05, abs=0.02)


def test_a_clock_that_went_between_two_looks_was_not_seen(gpu):
    for mhz in (900, 1200):
        gpu.watcher.expect(Switch(1.0, 100.0, math.nan, mhz, 0, 0))
    gpu.actual_mhz = 1200
    unseen, seen = gpu.look(1)
    assert (unseen.mhz, unseen.actual_mhz, math.isnan(unseen.reached_s)) == (900, 0, True)
    assert (seen.mhz, seen.actual_mhz) == (1200, 1200)


def test_a_clock_that_a_newer_one_overtook_tells_until_when_it_had_not_come(gpu):
    """Without, only latencies that end before the next request would be known: the long ones were missing."""
    gpu.actual_mhz = 600
    gpu.watcher.expect(Switch(1.0, gpu.now_s, math.nan, 600, 0, 0))
    gpu.look(1)
    for since_s, mhz in ((0.0, 900), (0.05, 1200)):
        gpu.watcher.expect(Switch(1.0, 100.02 + since_s, math.nan, mhz, 0, 0))

    def comes(number):
        gpu.actual_mhz = 1200 if number >= 20 else 600

    late, seen = gpu.look(25, comes)
    assert (late.mhz, late.actual_mhz, late.missing_s) == (900, 0, pytest.approx(100.07))
    assert (seen.mhz, seen.missing_s) == (1200, 0.0)


@pytest.mark.parametrize(("asked_mhz", "shown_mhz"), [((900, 600, 1200), 600), ((1410, 1200), 1050)])
def test_a_clock_that_may_have_come_and_gone_or_that_a_limit_holds_lower_tells_nothing(gpu, asked_mhz, shown_mhz):
    gpu.actual_mhz = 600
    gpu.watcher.expect(Switch(1.0, gpu.now_s, math.nan, 600, 0, 0))
    gpu.look(1)
    for number, mhz in enumerate(asked_mhz):
        gpu.watcher.expect(Switch(1.0, 100.02 + 0.01 * number, math.nan, mhz, 0, 0))

    def comes(number):
        gpu.actual_mhz = 1200 if number >= 20 else shown_mhz

    assert [(one.mhz, one.missing_s) for one in gpu.look(25, comes)] == [(mhz, 0.0) for mhz in asked_mhz]


def test_a_clock_that_was_there_already_tells_no_latency(gpu):
    gpu.actual_mhz = 900
    gpu.watcher.expect(Switch(1.0, 100.0, math.nan, 900, 0, 0))
    gpu.look(1)
    gpu.watcher.expect(Switch(1.0, gpu.now_s, math.nan, 900, 0, 0))
    (again,) = gpu.look(60)
    assert (again.actual_mhz, math.isnan(again.reached_s)) == (0, True)


def test_a_reset_ends_the_looking_and_what_was_not_seen_is_passed_on(gpu):
    gpu.actual_mhz = 1200
    replaced, reset = Switch(1.0, 100.0, math.nan, 900, 0, 0), Switch(2.0, 100.0, math.nan, RESET, 0, 0)
    gpu.watcher.expect(replaced)
    gpu.watcher.expect(reset)
    (passed_on,) = gpu.look(100)
    assert (passed_on.mhz, passed_on.actual_mhz, math.isnan(passed_on.reached_s)) == (900, 0, True)
    gpu.watcher.expect(Switch(3.0, gpu.now_s, math.nan, 900, 0, 0))
    assert [one.mhz for one in gpu.look(1)] == [RESET]


def test_of_many_requests_between_rare_looks_the_latest_are_kept(gpu):
    for number in range(40):
        gpu.watcher.expect(Switch(1.0, 100.0, math.nan, 600 + 15 * number, 0, 0))
    gpu.actual_mhz = 600 + 15 * 39
    records = gpu.look(1)
    assert len(records) == 40
    assert [one.mhz for one in records if not math.isnan(one.reached_s)] == [600 + 15 * 39]


def test_a_reset_while_the_clock_is_read_leaves_nothing_to_see(gpu):
    gpu.watcher.expect(Switch(1.0, 100.0, math.nan, 900, 0, 0))
    read = gpu.sm_clock_mhz

    def reset_meanwhile() -> int:
        gpu.watcher.expect(Switch(2.0, 100.0, math.nan, RESET, 0, 0))
        gpu.sm_clock_mhz = read
        return 900

    gpu.sm_clock_mhz = reset_meanwhile
    (old,) = gpu.look(1)
    assert (old.mhz, math.isnan(old.reached_s)) == (900, True)


def test_an_error_of_the_driver_ends_nothing_and_is_told_once(gpu):
    gpu.watcher.expect(Switch(99.0, 100.0, math.nan, 900, 0, 0))
    gpu.actual_mhz = 900

    def fails_at_first(number):
        gpu.errors = [refusal(NotSupported)] if number < 3 else []

    records = gpu.look(5, fails_at_first)
    assert notices(records) == ["[gpu-not-supported]"]
    assert [record.actual_mhz for record in records if isinstance(record, Switch)] == [900]


def test_what_has_gathered_is_sent_twenty_times_a_second(gpu):
    sent = []

    def moves(number):
        gpu.counter_j = float(number)
        sent.extend((gpu.now_s, record) for record in gpu.received())

    gpu.look(50, moves)
    times_s = sorted({at_s for at_s, _ in sent})
    gaps_s = [later - earlier for earlier, later in itertools.pairwise(times_s)]
    assert len(gaps_s) > 5
    assert all(0.05 <= gap_s < 0.07 for gap_s in gaps_s)
