"""The site's rules: no clock above its highest, and the operator's lock is back whenever Perseus lets go."""

import pytest
from fake_gpu import FakeGpu
from waiting import wait_for

from perseus_ds.device.observe import ObservedGpu
from perseus_ds.device.opening import open_gpu
from perseus_ds.device.site_policy import SitePolicy
from perseus_ds.messages import PerseusError


def test_without_rules_a_gpu_stays_as_it_is():
    gpu = FakeGpu()
    assert SitePolicy().govern(gpu) is gpu


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        (SitePolicy(max_mhz=1300), (1200, 900)),
        (SitePolicy(max_mhz=1200), (1200, 900)),
        (SitePolicy(restore_mhz=900), (900,)),
        (SitePolicy(max_mhz=1410, restore_mhz=900), (1410, 1200, 900)),
    ],
)
def test_clocks_above_the_highest_allowed_do_not_exist_for_perseus(policy, allowed):
    governed = policy.govern(FakeGpu())
    assert governed.supported_clocks_mhz == allowed
    assert governed.sets_clocks


def test_a_limit_below_every_clock_is_refused():
    with pytest.raises(PerseusError, match=r"as low as 800 MHz; the lowest is 900 MHz.*\[site-clock\]"):
        SitePolicy(max_mhz=800).govern(FakeGpu())


def test_to_reset_is_to_put_the_operator_s_lock_back():
    gpu = FakeGpu()
    governed = SitePolicy(restore_mhz=1200).govern(gpu)
    governed.lock_clock(900)
    governed.reset_clocks()
    assert gpu.asked == [900, 1200]


def test_without_a_lock_of_the_operator_s_a_reset_unlocks():
    gpu = FakeGpu()
    SitePolicy(max_mhz=1200).govern(gpu).reset_clocks()
    assert gpu.asked == [None]


def test_a_gpu_that_is_only_observed_gets_no_lock_back():
    gpu = FakeGpu()
    governed = SitePolicy(restore_mhz=1200).govern(ObservedGpu(gpu))
    governed.reset_clocks()
    assert gpu.asked == []
    assert not governed.sets_clocks


def test_opening_a_gpu_locks_it_as_the_operator_had_it(gpu):
    gpu.lock_clock(900)  # left by a crash
    open_gpu(0, policy=SitePolicy(restore_mhz=1200))
    assert gpu.is_locked()
    wait_for(lambda: gpu.sm_clock_mhz() == 1200)
