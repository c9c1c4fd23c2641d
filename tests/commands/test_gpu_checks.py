"""What the doctor finds on GPUs, and on machines without any."""

import pytest

from perseus_ds.commands import gpu_checks
from perseus_ds.commands.gpu_checks import check_gpus, check_zeusd
from perseus_ds.device.driver import DriverError, Remark
from perseus_ds.device.site_policy import SitePolicy
from perseus_ds.simulator.driver import SIMULATOR_VARIABLE
from perseus_ds.simulator.gpu import GpuSpec, VirtualGpu, create_gpu
from perseus_ds.simulator.state import state_path


@pytest.fixture
def gpu_file(tmp_path, monkeypatch):
    """A host with one virtual GPU."""
    import pynvml

    file = state_path(tmp_path, 0)
    create_gpu(file, GpuSpec((1410, 1200, 900)))
    monkeypatch.setenv(SIMULATOR_VARIABLE, str(tmp_path))
    monkeypatch.setattr(pynvml, "nvmlLib", pynvml.nvmlLib)
    return file


def found(findings) -> dict:
    return {finding.check: finding for finding in findings}


def test_without_a_gpu_it_says_what_still_works():
    (finding,) = check_gpus(simulated=False, must_set_clocks=True, try_clocks=False)
    assert finding.status == "bad"
    assert "NVML does not start" in finding.found
    assert "training on simulated GPUs" in finding.remedy


def test_a_configuration_with_simulated_gpus_needs_no_real_one():
    (finding,) = check_gpus(simulated=True, must_set_clocks=True, try_clocks=False)
    assert finding.status == "good"
    assert "simulated GPUs" in finding.found


def test_a_good_gpu_is_described_and_its_clocks_are_left_alone(gpu_file):
    gpu = VirtualGpu(gpu_file)
    gpu.lock_clock(900)
    findings = found(check_gpus(simulated=False, must_set_clocks=True, try_clocks=False))
    assert "3 from 900 to 1410 MHz" in findings["GPU 0: clocks"].found
    assert findings["GPU 0: energy counter"].status == "good"
    assert gpu.is_locked()


def test_the_site_s_rules_hold_while_trying(gpu_file):
    gpu = VirtualGpu(gpu_file)
    findings = found(check_gpus(simulated=False, must_set_clocks=True, try_clocks=True, policy=SitePolicy(1200, 900)))
    assert "2 from 900 to 1200 MHz" in findings["GPU 0: clocks"].found
    assert gpu.is_locked()


def test_trying_tells_a_gpu_that_does_not_permit_clocks(gpu_file):
    VirtualGpu(gpu_file).set_fault("no_permission")
    permission = found(check_gpus(simulated=False, must_set_clocks=True, try_clocks=True))["GPU 0: permission"]
    assert permission.status == "bad"
    assert "CAP_SYS_ADMIN" in permission.remedy
    VirtualGpu(gpu_file).set_fault(None)
    again = found(check_gpus(simulated=False, must_set_clocks=True, try_clocks=True))
    assert again["GPU 0: permission"].status == "good"


def test_a_process_without_the_capability_is_told_what_it_needs(gpu_file, monkeypatch):
    monkeypatch.setattr("perseus_ds.commands.gpu_checks._may_administrate", lambda: False)
    permission = found(check_gpus(simulated=False, must_set_clocks=True, try_clocks=False))["GPU 0: permission"]
    assert permission.status == "bad"
    assert "--cap-add SYS_ADMIN" in permission.remedy


def test_a_gpu_in_mig_mode_is_refused(tmp_path, monkeypatch, gpu_file):
    gpu_file.unlink()
    create_gpu(gpu_file, GpuSpec((1410, 900), mig=True))
    (finding,) = check_gpus(simulated=False, must_set_clocks=True, try_clocks=False)
    assert finding.status == "bad"
    assert "MIG" in finding.remedy


def test_zeusd_is_bad_only_where_it_is_needed(tmp_path):
    address = str(tmp_path / "no.sock")
    assert check_zeusd(address).status == "note"
    needed = check_zeusd(address, needed=True)
    assert (needed.status, "start zeusd" in needed.remedy) == ("bad", True)


def test_what_the_driver_remarks_is_a_note_with_its_remedy_or_good_without(gpu_file, monkeypatch):
    from perseus_ds.device.nvml import NvmlGpu

    monkeypatch.setattr(NvmlGpu, "remarks", lambda gpu: [Remark("fan", "loud", "oil it"), Remark("dust", "none")])
    findings = found(check_gpus(simulated=False, must_set_clocks=False, try_clocks=False))
    assert [(findings[f"GPU 0: {about}"].status) for about in ("fan", "dust")] == ["note", "good"]
    assert "GPU 0: permission" not in findings


@pytest.mark.parametrize("function", ["count", "open"])
def test_a_driver_that_fails_is_told_with_its_remedy(gpu_file, monkeypatch, function):
    from perseus_ds.device.nvml import NvmlDriver

    def fail(*_):
        raise DriverError(driver="NVML", gpu="GPU", action=function, detail="broken")

    monkeypatch.setattr(NvmlDriver, function, fail)
    (finding,) = check_gpus(simulated=False, must_set_clocks=False, try_clocks=False)
    assert (finding.status, "broken" in finding.found, "dmesg" in finding.remedy) == ("bad", True, True)


def test_a_counter_that_cannot_be_read_is_bad(gpu_file):
    VirtualGpu(gpu_file).set_fault("gpu_is_lost")
    findings = found(check_gpus(simulated=False, must_set_clocks=False, try_clocks=False))
    assert findings["GPU 0: energy counter"].status == "bad"


def test_a_driver_without_gpus_is_bad(gpu_file, monkeypatch):
    from perseus_ds.device.nvml import NvmlDriver

    monkeypatch.setattr(NvmlDriver, "count", lambda driver: 0)
    (finding,) = check_gpus(simulated=False, must_set_clocks=False, try_clocks=False)
    assert (finding.status, finding.found) == ("bad", "the driver lists none")


@pytest.mark.parametrize(("capabilities", "may"), [("0000000000200000", True), ("000001ffffdfffff", False)])
def test_the_capability_is_read_from_the_kernel(tmp_path, monkeypatch, capabilities, may):
    status = tmp_path / "status"
    status.write_text(f"CapPrm:\tffffffffffffffff\nCapEff:\t{capabilities}\n")
    monkeypatch.setattr(gpu_checks, "Path", lambda name: status)
    assert gpu_checks._may_administrate() is may
    monkeypatch.setattr(gpu_checks, "Path", lambda name: tmp_path / "none")
    monkeypatch.setattr(gpu_checks.os, "geteuid", lambda: 0 if may else 1000)
    assert gpu_checks._may_administrate() is may
