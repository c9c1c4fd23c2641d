"""Another program changes a clock while a keeper sets clocks: noticed, said once, respected or taken back."""

import subprocess
import sys
import time

import pytest
from fake_gpu import FakeGpu
from waiting import wait_for

from perseus_ds.config import DeviceConfig
from perseus_ds.device.clock_keeper import ClockKeeper
from perseus_ds.device.driver import Throttle
from perseus_ds.device.foreign import ForeignClocks
from perseus_ds.device.protocol import RESET

# As nvidia-smi -lgc does, in a process of its own.
OTHER_PROGRAM = """
import os, sys
from perseus_ds.simulator.driver import install_driver
install_driver(os.environ["PERSEUS_DS_SIMULATOR"])
import pynvml
pynvml.nvmlInit()
mhz = int(sys.argv[1])
pynvml.nvmlDeviceSetGpuLockedClocks(pynvml.nvmlDeviceGetHandleByIndex(0), mhz, mhz)
"""
NOTHING = Throttle(0)
CLOCKS_MHZ = (1410, 1305, 1200, 1095, 900)


def somebody_sets(mhz: int) -> None:
    subprocess.run([sys.executable, "-c", OTHER_PROGRAM, str(mhz)], check=True)


@pytest.fixture
def keep(make_gpus):
    """Starts a keeper that has locked 1095 MHz on a GPU, and returns the two, and all that it says."""
    (gpu,) = make_gpus(clocks_mhz=CLOCKS_MHZ, counter_period_s=0.02)
    keepers = []

    def keep(**device):
        keeper = ClockKeeper.start(device=DeviceConfig(**device))
        keepers.append(keeper)
        keeper.set_mhz(1095)
        wait_for(lambda: gpu.sm_clock_mhz() == 1095)
        time.sleep(1.2)  # it was at its default clocks before
        return gpu, keeper

    yield keep
    for keeper in keepers:
        keeper.close()


def said(keeper, until: float = 6.0) -> list[str]:
    notices: list[str] = []

    def listens() -> list[str]:
        notices.extend(keeper.drain().notices)
        return notices

    wait_for(listens, until)
    time.sleep(1.0)
    return listens()


def test_by_default_the_gpu_is_left_to_the_other_program_until_the_end_and_after_it(keep):
    gpu, keeper = keep()
    somebody_sets(1305)
    (line,) = said(keeper)
    assert "another program has set 1305 MHz over our 1095 MHz" in line
    keeper.set_mhz(900)
    time.sleep(0.3)
    assert gpu.sm_clock_mhz() == 1305
    keeper.close()
    assert gpu.is_locked()
    assert gpu.sm_clock_mhz() == 1305


def test_a_clock_is_taken_back_where_that_is_wanted_each_time_and_said_once(keep):
    gpu, keeper = keep(foreign_clocks="take_back")
    somebody_sets(1305)
    (line,) = said(keeper)
    assert "our clocks are set again" in line
    wait_for(lambda: gpu.sm_clock_mhz() == 1095)
    somebody_sets(1200)
    wait_for(lambda: gpu.sm_clock_mhz() == 1200)
    wait_for(lambda: gpu.sm_clock_mhz() == 1095)
    keeper.set_mhz(900)
    wait_for(lambda: gpu.sm_clock_mhz() == 900)
    assert keeper.close().notices == ()
    assert not gpu.is_locked()


def test_a_clock_above_the_site_s_highest_is_taken_back_in_any_case(keep):
    gpu, keeper = keep(max_mhz=1200)
    somebody_sets(1410)
    (line,) = said(keeper)
    assert "[foreign-clock-taken-back]" in line
    wait_for(lambda: gpu.sm_clock_mhz() == 1095)


class Readings:
    """Readings of a GPU every 0.1 s, with a request now and then."""

    def __init__(self) -> None:
        self.gpu = FakeGpu()
        self.gpu.supported_clocks_mhz = CLOCKS_MHZ
        self.foreign = ForeignClocks(self.gpu, latency_s=0.01)
        self.now_s = 100.0

    def asks(self, mhz: int) -> None:
        self.foreign.asked(self.now_s, mhz)

    def reads(self, mhz: int, times: int = 50, every_s: float = 0.1, reasons: Throttle = NOTHING) -> list[int]:
        found = []
        for _ in range(times):
            self.now_s += every_s
            found.append(self.foreign.sees(self.now_s, mhz, reasons))
        return [mhz for mhz in found if mhz]


@pytest.mark.parametrize("every_s", [0.005, 0.1, 1.0, 3.0])
def test_a_clock_that_stays_is_noticed_however_often_the_gpu_is_read(every_s):
    readings = Readings()
    readings.asks(1095)
    assert readings.reads(1095, times=int(5 / every_s) + 2, every_s=every_s) == []
    assert readings.reads(1305, times=int(10 / every_s) + 4, every_s=every_s)[0] == 1305


def test_what_may_have_another_cause_is_not_somebody_else_s_clock():
    readings = Readings()
    assert readings.reads(1200) == []  # at its defaults a GPU may run at any clock
    readings.asks(1305)
    assert readings.reads(1200, times=8) == []  # the new clock may be late
    readings.reads(1305)
    assert readings.reads(1200, reasons=Throttle.SOFTWARE_POWER_CAP) == []
    assert readings.reads(900) == []  # idle
    assert readings.reads(1260) == []  # warm
    assert readings.reads(1095, times=2) == []  # on its way somewhere
    for mhz in (1200, 1305) * 20:  # a clock of before that comes late
        readings.asks(mhz)
        assert readings.reads(1305, times=3) == []
        assert readings.reads(1200, times=3) == []
    readings.asks(RESET)
    assert readings.reads(1095) == []
