"""Observing reads everything and sets nothing."""

from fake_gpu import FakeGpu

from perseus_ds.device.driver import Throttle
from perseus_ds.device.observe import ObservedGpu


def test_an_observed_gpu_reads_like_the_one_beneath_and_sets_nothing():
    gpu = FakeGpu()
    gpu.counter_j, gpu.actual_mhz, gpu.reasons = 7.0, 1200, Throttle.HARDWARE_SLOWDOWN
    observed = ObservedGpu(gpu)
    observed.lock_clock(900)
    observed.reset_clocks()
    assert gpu.asked == []
    assert not observed.sets_clocks
    for name in ("index", "pci_bus_id", "uuid", "name", "driver_version", "supported_clocks_mhz", "clock_step_mhz"):
        assert getattr(observed, name) == getattr(gpu, name)
    assert (observed.energy_j(), observed.sm_clock_mhz(), observed.power_limit_w()) == (7.0, 1200, 400.0)
    assert observed.modes() == "a mode"
    assert (observed.throttle(), observed.remarks()) == (Throttle.HARDWARE_SLOWDOWN, [])
