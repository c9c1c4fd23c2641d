"""Drivers behind one interface: a vendor of its own goes all the ways that NVIDIA's does, by one line."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny_vendor
from waiting import wait_for

from perseus_ds import isolated
from perseus_ds.cli import main
from perseus_ds.commands.gpu_checks import check_gpus
from perseus_ds.device.clock_keeper import ClockKeeper
from perseus_ds.device.driver import (
    DriverError,
    DriverTimeout,
    GpuLost,
    NoDriver,
    NotPermitted,
    NotSupported,
    Throttle,
    is_reached,
    reset_patiently,
)
from perseus_ds.device.opening import DRIVERS, open_driver, open_gpu

PACKAGE = Path(isolated.__file__).parent
LINE = ("tiny", "tiny_vendor:TinyDriver")
# What one line in ``DRIVERS`` does for the keeper's process.
REGISTERED = f"""
import runpy, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from perseus_ds.device.opening import DRIVERS
DRIVERS[{LINE[0]!r}] = {LINE[1]!r}
sys.argv[:1] = []
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Two GPUs of another vendor, one of them locked by a crash; NVIDIA's driver is not here."""
    file = tmp_path / "gpus.json"
    file.write_text(json.dumps([{"locked_mhz": 500}, {"locked_mhz": None}]))
    monkeypatch.setitem(DRIVERS, *LINE)
    monkeypatch.setenv(tiny_vendor.VARIABLE, str(file))
    monkeypatch.delenv("PERSEUS_DS_SIMULATOR", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(isolated, "command", lambda module: [sys.executable, "-c", REGISTERED, module])
    return file


def locked_mhz(file: Path) -> list[int | None]:
    return [gpu["locked_mhz"] for gpu in json.loads(file.read_text())]


def refuse(file: Path, error: str) -> None:
    file.write_text(json.dumps([{**gpu, "error": error} for gpu in json.loads(file.read_text())]))


def test_another_vendors_keeper_sets_reads_and_gives_back(tiny):
    keeper = ClockKeeper.start(1)
    info = keeper.info
    assert (info.backend, info.uuid, info.name, info.supported_clocks_mhz) == (
        "tiny",
        "tiny-1",
        "Tiny 1",
        (700, 600, 500),
    )
    keeper.set_mhz(600)
    wait_for(lambda: locked_mhz(tiny) == [500, 600])
    time.sleep(0.4)
    update = keeper.drain()
    assert [switch.actual_mhz for switch in update.switches] == [600]
    assert {sample.throttle_reasons for sample in update.samples} == {Throttle.SOFTWARE_POWER_CAP}
    keeper.close()
    assert locked_mhz(tiny) == [500, None]


def test_another_vendors_refusals_are_understood(tiny):
    refuse(tiny, "NotPermitted")
    opened = open_gpu(0, zeusd_address="/nowhere")
    assert opened.backend == "observe"
    assert "Tiny SMI denies permission" in opened.reason
    with pytest.raises(NotPermitted, match="CAP_SYS_ADMIN"):
        open_gpu(0, "tiny")
    refuse(tiny, "GpuLost")
    with pytest.raises(GpuLost):
        open_gpu(0)


def test_another_vendor_passes_the_doctor_and_is_reset(tiny, capsys):
    findings = {finding.check: finding for finding in check_gpus(False, must_set_clocks=True, try_clocks=False)}
    assert "Tiny 1, driver 7" in findings["GPU 0"].found
    assert (findings["GPU 1: fan"].status, findings["GPU 1: fan"].remedy) == ("note", "close the door")
    assert locked_mhz(tiny) == [500, None], "the doctor only looks"
    assert main(["reset-clocks"]) == 0
    assert "GPU 0 (Tiny 1): clocks reset through tiny" in capsys.readouterr().out
    assert locked_mhz(tiny) == [None, None]


def test_the_first_driver_that_is_there_is_taken(tiny, monkeypatch):
    assert open_driver().name == "tiny"
    with pytest.raises(NoDriver, match="NVML does not start"):
        open_driver("nvml")
    monkeypatch.delenv(tiny_vendor.VARIABLE)
    with pytest.raises(NoDriver, match="NVML does not start"):
        open_driver()


class Stubborn:
    """Refuses to reset a number of times."""

    def __init__(self, error: type[DriverError], times: int) -> None:
        self.error, self.left, self.asked = error, times, 0

    def reset_clocks(self) -> None:
        self.asked += 1
        self.left -= 1
        if self.left >= 0:
            raise self.error(driver="d", gpu="g", action="a", detail="x")


@pytest.mark.parametrize("error", [DriverError, DriverTimeout])
def test_what_may_pass_is_tried_again_but_not_for_ever(error, monkeypatch):
    monkeypatch.setattr("perseus_ds.device.driver._RESET_PAUSE_S", 0.0)
    passing, lasting = Stubborn(error, 14), Stubborn(error, 15)
    reset_patiently(passing)
    assert passing.asked == 15
    with pytest.raises(error):
        reset_patiently(lasting)
    assert lasting.asked == 15


@pytest.mark.parametrize("error", [NotPermitted, NotSupported, GpuLost, NoDriver])
def test_what_will_not_pass_is_not_tried_again(error):
    gpu = Stubborn(error, 1)
    with pytest.raises(error):
        reset_patiently(gpu)
    assert gpu.asked == 1


def test_a_clock_is_reached_when_it_is_nearer_than_the_next():
    gpu = tiny_vendor.TinyGpu(Path(), 0)
    assert [is_reached(gpu, mhz, 600) for mhz in (549, 550, 600, 650, 651)] == [False, True, True, True, False]


def test_throttle_reasons_have_names():
    both = Throttle.SOFTWARE_POWER_CAP | Throttle.HARDWARE_POWER_BRAKE
    assert both.text == "software power cap, hardware power brake"
    assert Throttle(0).text == "no reason given"
    assert len({int(reason) for reason in Throttle}) == 5


def test_nvidias_library_is_known_to_one_module_and_to_the_virtual_gpus_beneath_it():
    named = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "pynvml" in path.read_text()}
    outside = {name for name in named if not name.startswith(("simulator/", "silicon/", "config/", "messages/"))}
    assert outside == {"device/nvml.py", "device/reading_only.py", "frontier/__init__.py"}


def test_opening_a_gpu_of_another_vendor_loads_no_nvidia_library():
    modules = "perseus_ds.device.clock_keeper, perseus_ds.commands.doctor"
    code = f"import sys, {modules}; sys.exit('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
