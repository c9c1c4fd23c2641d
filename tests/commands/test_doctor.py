"""The doctor on machines that lack this or that."""

import json
import re
from pathlib import Path

import pytest

from perseus_ds.cli import main
from perseus_ds.commands import doctor
from perseus_ds.commands.diagnosis import check_files, check_gloo, check_gpus, check_zeusd
from perseus_ds.messages import PerseusError
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


def test_trying_tells_a_gpu_that_does_not_permit_clocks(gpu_file):
    VirtualGpu(gpu_file).set_fault("no_permission")
    permission = found(check_gpus(simulated=False, must_set_clocks=True, try_clocks=True))["GPU 0: permission"]
    assert permission.status == "bad"
    assert "CAP_SYS_ADMIN" in permission.remedy
    VirtualGpu(gpu_file).set_fault(None)
    again = found(check_gpus(simulated=False, must_set_clocks=True, try_clocks=True))
    assert again["GPU 0: permission"].status == "good"


def test_a_process_without_the_capability_is_told_what_it_needs(gpu_file, monkeypatch):
    monkeypatch.setattr("perseus_ds.commands.diagnosis._may_administrate", lambda: False)
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


def test_gloo_connects_on_this_host():
    assert check_gloo().status == "good"


def test_a_run_directory_on_top_of_a_file_is_bad(tmp_path):
    from perseus_ds.config import Config

    (tmp_path / "file").write_text("")
    findings = found(check_files(Config(run_dir=tmp_path / "file" / "run")))
    assert findings["run directory"].status == "bad"


def test_a_run_directory_where_this_user_may_not_look_is_bad(tmp_path, monkeypatch):
    from perseus_ds.config import Config

    def exists(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", exists)
    finding = found(check_files(Config(run_dir=tmp_path / "run")))["run directory"]
    assert finding.status == "bad"
    assert "Permission denied" in finding.found
    assert "may write to" in finding.remedy


def test_json_is_all_that_standard_output_holds_and_the_exit_code_tells(tmp_path, capsys):
    config = tmp_path / "perseus.yaml"
    config.write_text(f"run_dir: {tmp_path}/run\nsimulator: {{}}\n")
    code = main(["doctor", "--json", "--perseus", str(config)])
    report = json.loads(capsys.readouterr().out)
    assert (code, report["good"]) == (0, True), report
    checks = {finding["check"]: finding for finding in report["findings"]}
    assert re.search(r"deepspeed \S+: all \d+ patch targets are there", checks["deepspeed"]["found"])
    assert "patch targets are there" in checks["megatron-core"]["found"]
    assert not (tmp_path / "run").exists(), "the doctor only looks"


def test_the_table_has_a_remedy_for_what_is_bad(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "check_frameworks", lambda: iter(()))
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "✗" in text
    assert "1 of 4 checks are bad." in text


def test_a_wrong_configuration_is_exit_code_two(capsys):
    assert main(["doctor", "--perseus", "nowhere.yaml"]) == 2
    assert str(PerseusError("config-missing", file="nowhere.yaml")) in capsys.readouterr().err
