"""Where clocks are asked for: right on the virtual stream, and each pass line fails where something is broken."""

import pytest

from perseus_ds.silicon.lab import Host
from perseus_ds.silicon.position import SITUATIONS, Requests, Situation, judge, measure
from perseus_ds.silicon.virtual_keeper import VirtualKeeper
from perseus_ds.silicon.virtual_lab import VirtualLab

AHEAD = Situation(0.2, Host.WAITS)


@pytest.mark.parametrize("situation", [SITUATIONS[0], AHEAD, SITUATIONS[-1]])
def test_clocks_are_asked_for_where_the_device_is(make_lab, situation):
    outcome = judge([measure(make_lab(), situation)])
    assert outcome.passed, outcome.why
    assert outcome.figures["requests"] == 85


class LateFollower(VirtualLab):
    follower_lag_s = 0.0015


class LateKeeper(VirtualLab):
    keeper_lag_s = 0.0003


class HastyKeeper(VirtualKeeper):
    """Asks for everything too early."""

    def set_mhz(self, mhz, not_before_s=0.0):
        super().set_mhz(mhz, max(0.0, not_before_s - 0.001))


class Hasty(VirtualLab):
    def keeper(self):
        return HastyKeeper(self)


class WrongWay(VirtualKeeper):
    """Takes each clock for another."""

    def set_mhz(self, mhz, not_before_s=0.0):
        super().set_mhz(3000 - mhz, not_before_s)


class Wrong(VirtualLab):
    def keeper(self):
        return WrongWay(self)


@pytest.mark.parametrize(
    ("kind", "why"),
    [(LateFollower, "p99"), (LateKeeper, "p50"), (Hasty, "before its moment"), (Wrong, "other clocks than planned")],
)
def test_what_is_broken_is_told(make_lab, kind, why):
    outcome = judge([measure(make_lab(kind), AHEAD)])
    assert not outcome.passed
    assert why in outcome.why


def test_situations_beside_other_trainers_count():
    good = Requests(True, (1e-4,) * 9, (1e-4,) * 9)
    assert judge([good], [good]).passed
    assert "10.00 ms off" in judge([good], [Requests(True, (1e-4,) * 9, (1e-2,) * 9)]).why
    assert "p99" in judge([good], [Requests(True, (2e-3,) * 9, ())]).why
    assert "in 1 of 2 situations" in judge([good], [Requests(False, (), ())]).why


def test_a_clock_that_would_arrive_too_late_is_told():
    assert judge([Requests(True, (1e-4,) * 9, (1e-4,) * 9)]).passed
    assert "clocks would arrive 2.00 ms off" in judge([Requests(True, (1e-4,) * 9, (-2e-3,) * 9)]).why
