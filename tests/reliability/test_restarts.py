"""Jobs that are started again: by their launcher, with more ranks, from what an earlier run has left damaged."""

import json
import os
import shutil
import subprocess
import time
from contextlib import suppress

import jobs
import pytest

pytestmark = [
    pytest.mark.launch,
    pytest.mark.against_the_clock("a busy host delays ranks as a fault does"),
    pytest.mark.quiet_host,
    pytest.mark.parametrize("framework", ["deepspeed", "megatron"], scope="module"),
]
BUS_TIMEOUT_S = 10.0  # here nothing waits for it
# Else the gloo groups of restarted ranks find those of the dead ones, with Perseus or without (torch 2.13).
NEW_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
_run: dict[tuple[str, str, int], jobs.Job] = {}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    yield tmp_path_factory.mktemp("restarts")
    for job in _run.values():
        job.kill()


@pytest.fixture
def launched(framework, directory, attempt):
    """A job of two ranks under torchrun, with a plan in force."""
    key = framework, "torchrun", attempt
    if key not in _run:
        own = directory / f"{framework}-{attempt}"
        config = jobs.prepare(own, bus_timeout_s=BUS_TIMEOUT_S)
        command = ["torchrun", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1", "-m", "perseus_ds"]
        command += ["run", str(jobs.TRAINING), "--perseus", str(config), framework, str(own)]
        _run[key] = jobs.launched(own, [command], **NEW_STORE)
    _run[key].enforces()
    return _run[key]


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory):
    """A file system of half a megabyte."""
    place = tmp_path_factory.mktemp("small")
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "perseus", place]).returncode:
        pytest.skip("only root may mount a small disk")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture
def grown(framework, launched, directory, attempt, small_disk):
    """A job of two pipelines, on a small disk, that finds what a job of one has left, its trace damaged."""
    key = framework, "grown", attempt
    if key not in _run:
        launched.stop()
        for ballast in small_disk.glob("*/ballast"):  # of the other framework's full disk
            ballast.unlink()
        own, run_dir = directory / f"{framework}-grown-{attempt}", small_disk / f"{framework}-{attempt}"
        own.mkdir()
        shutil.copytree(launched.run_dir, run_dir, ignore=shutil.ignore_patterns("gpus", "error-*", "*.html"))
        (own / "gpus").mkdir()
        (run_dir / "gpus").symlink_to(own / "gpus")  # a real GPU is not on the disk
        trace = json.loads((run_dir / "trace.json").read_text())
        lost = next(one for one in trace[0]["operations"] if one["transfers"])
        trace[0]["operations"].remove(lost)
        (run_dir / "trace.json").write_text(json.dumps(trace))
        _run[key] = jobs.by_hand(own, framework, ranks=4, run_dir=str(run_dir), bus_timeout_s=BUS_TIMEOUT_S)
        _run[key].run_dir, _run[key].gpu_dir = run_dir, own / "gpus"
    return _run[key]


@pytest.mark.fault(
    "A trainer is killed under `torchrun --max-restarts`",
    "clocks are reset; the ranks that torchrun starts again profile nothing; the plan comes back",
)
def test_torchrun_starts_the_ranks_again(launched, recovered):
    begin_s = time.time()
    victim, _ = launched.at(1)
    os.kill(victim, 9)
    begins_s = launched.begins(begin_s)
    plan = launched.enforces(begins_s)
    assert not launched.profiled(begins_s)
    recovered(f"{plan['time'] - begin_s:.0f} s, {plan['time'] - begins_s:.1f} s of them from the first iteration on")


@pytest.mark.fault(
    "The job starts again with twice the ranks (DP 1 → 2), and the run directory's `trace.json` has lost an operation",
    "one line; the profile is used again; only the pipeline is traced anew",
)
def test_the_world_has_grown_and_the_trace_is_damaged(grown, recovered):
    begin_s = grown.sees("start", pipelines=2)["time"]
    plan = grown.enforces(begin_s)
    assert not grown.profiled(begin_s)
    assert grown.log().count("[resume-damaged]") == 1
    assert "Traceback" not in grown.log()
    recovered(f"{plan['time'] - begin_s:.1f} s after its first iteration")


@pytest.mark.fault("The disk of the run directory is full", "the plan stays in force; one line at the end")
def test_the_disk_is_full(grown, recovered):
    with suppress(OSError), (grown.run_dir / "ballast").open("wb", buffering=0) as ballast:
        while ballast.write(bytes(4096)):
            pass
    grown.goes_on(20)
    assert any(gpu.is_locked() for gpu in grown.gpus())
    grown.stop()
    assert "Traceback" not in grown.log()
    assert "[switched-off]" not in grown.log()
    assert "No space left" in grown.log()
    recovered("0 s: the plan stays in force")
