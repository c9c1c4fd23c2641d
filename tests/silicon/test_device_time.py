"""The timer's clock against the device's: close on the virtual stream, and told where it is not."""

from perseus_ds.silicon.device_time import device_time
from perseus_ds.silicon.virtual_lab import EPOCH_S, VirtualLab


def test_device_time_stays_with_the_hosts(make_lab):
    outcome = device_time(make_lab())
    assert outcome.passed, outcome.why
    assert outcome.figures["looks"] >= 30


class LateFollower(VirtualLab):
    """The device's clock runs 10 ppm fast, and nobody sees in time what is over."""

    follower_lag_s = 0.003

    def device_clock_s(self, host_s):
        return host_s * (1.0 + 1e-5) + EPOCH_S


def test_a_clock_that_runs_away_is_told(make_lab):
    outcome = device_time(make_lab(LateFollower))
    assert not outcome.passed
    assert "us off, limit 100 us" in outcome.why
    assert abs(outcome.figures["device_clock_ppm"] + 10.0) < 0.1


class Wanders(LateFollower):
    """Besides, events are seen later and later."""

    first_s = 0.0

    @property
    def follower_lag_s(self):
        self.first_s = self.first_s or self.now_s()
        return 20e-6 + 1e-6 * (self.now_s() - self.first_s)


def test_a_drift_is_told(make_lab):
    assert "drifts by" in device_time(make_lab(Wanders)).why
