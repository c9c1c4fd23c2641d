"""How a rank is put together: on all ranks or on none, on GPUs of every kind."""

import json
import logging
from typing import ClassVar

import pytest
import torch.distributed as dist
from lone_rank import LoneGpu
from torch.distributed import DistStoreError

from perseus_ds.config import Config
from perseus_ds.coordination.resume import Hardware
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.events import Topology
from perseus_ds.report.energy_file import EnergyFile
from perseus_ds.report.event_log import JobLog, RankLog
from perseus_ds.report.metrics_writer import MetricsWriter
from perseus_ds.report.run_recorder import RunRecorder
from perseus_ds.runtime import attach as module
from perseus_ds.runtime.attach import attach
from perseus_ds.runtime.beginning import AttachFailed

ALONE = Topology(0, 1, 0, 1, 0, 1, framework="made up 1")


class Gpu(LoneGpu):
    """A GPU as ``attach`` opens it."""

    gpu_name, driver_version, backend_reason, sets_clocks, switch_latency_s = "A", "550", "nvml: it may", True, 0.01
    power_limit_w = 400.0
    modes = "ECC on"
    closed = 0

    def __init__(self, config, topology) -> None:
        super().__init__()

    def describe(self) -> dict:
        return {"name": self.gpu_name}

    def close(self):
        type(self).closed += 1
        return super().close()


@pytest.fixture
def gpu(monkeypatch):
    """The class of the GPU that is opened, in a job of one rank."""

    class Mine(Gpu):
        loaded: ClassVar[list[str]] = []

    monkeypatch.setattr(module, "RankGpu", Mine)
    monkeypatch.setattr(module, "load_kernels", lambda: None)
    monkeypatch.setattr(module, "load_path_kernel", lambda: Mine.loaded.append("kernel"))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield Mine
    dist.destroy_process_group()


def test_a_rank_that_is_alone_coordinates_writes_and_sets_clocks(tmp_path, gpu):
    prometheus = tmp_path / "perseus.prom"
    config = Config(run_dir=tmp_path / "run", report={"html": False, "prometheus_textfile": prometheus})
    session = attach(config, ALONE)
    assert [type(one) for one in session._subscribers] == [RankLog, JobLog, RunRecorder, EnergyFile, MetricsWriter]
    session.iteration_begin(1, training=True)
    session.close()
    assert gpu.closed == 1
    assert gpu.loaded == ["kernel"]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["gpu"] == {"name": "A"}
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["framework"] == "made up 1"
    assert session._controller._sets_clocks


def test_without_metrics_nobody_writes_any(tmp_path, gpu):
    session = attach(Config(run_dir=tmp_path, report={"html": False, "tensorboard": False}), ALONE)
    assert MetricsWriter not in [type(one) for one in session._subscribers]
    session.close()


def test_a_run_directory_that_is_none_is_an_error_and_the_gpu_is_given_back(tmp_path, gpu):
    (tmp_path / "run").write_text("a file")
    with pytest.raises(AttachFailed, match="run") as failed:
        attach(Config(run_dir=tmp_path / "run"), ALONE)
    assert gpu.closed == 1
    assert failed.value.lasts
    assert "[run-dir-not-writable]" in str(failed.value.error)


def test_whatever_fails_is_undone_and_the_next_attempt_finds_nothing_of_it(tmp_path, gpu, monkeypatch):
    def look_up(*_):
        raise OSError("no file system")

    config = Config(run_dir=tmp_path, report={"html": False})
    with monkeypatch.context() as broken:
        broken.setattr(module, "look_up", look_up)
        with pytest.raises(AttachFailed, match="no file system") as failed:
            attach(config, ALONE)
    assert not failed.value.lasts
    assert gpu.closed == 1
    with pytest.raises(AttachFailed, match="no file system"):
        attach(config, ALONE)  # a rank that comes late to an attempt that has failed
    assert gpu.closed == 1
    attach(config, ALONE, attempt=1).close()


def test_ranks_that_do_not_come_in_time_are_the_cause_and_not_how_this_rank_has_noticed(tmp_path, gpu, monkeypatch):
    def late(*_, **__):
        raise DistStoreError("wait timeout after 2000ms")

    monkeypatch.setattr(module, "Bus", late)
    with pytest.raises(AttachFailed, match=r"\[round-overdue\]") as failed:
        attach(Config(run_dir=tmp_path), ALONE)
    assert failed.value.error.code == "round-overdue"


def test_a_gpu_that_refuses_is_an_error(tmp_path, gpu, monkeypatch):
    def refuse(*_):
        raise PerseusError("failed-elsewhere", ranks="made to fail")

    monkeypatch.setattr(module, "RankGpu", refuse)
    with pytest.raises(AttachFailed, match="made to fail"):
        attach(Config(run_dir=tmp_path / "run"), ALONE)
    assert not (tmp_path / "run").exists()


def test_where_a_gpu_may_not_set_clocks_and_nothing_is_known_the_user_is_told(tmp_path, gpu, caplog):
    caplog.set_level(logging.INFO, "perseus_ds")
    gpu.sets_clocks = False
    session = attach(Config(run_dir=tmp_path, report={"html": False}), ALONE)
    told = [record.getMessage() for record in caplog.records]
    assert told[0] == "A; clocks through nvml: it may"
    assert ["[one-stage]" in line or "[observe-no-profile]" in line for line in told] == [False, True, True]
    assert not session._controller._sets_clocks
    session.close()


def hardware(names: str, latencies_s=()) -> list[Hardware]:
    latencies_s = latencies_s or [0.01] * len(names)
    return [Hardware(name, "550", (1400,), late_s) for name, late_s in zip(names, latencies_s, strict=True)]


def test_what_a_profile_depends_on_is_of_the_first_pipeline_of_each_group():
    topology = Topology(0, 6, 0, 3, 0, 2)
    depends = module._depends(Config(run_dir="unused"), topology, hardware("AABBAA"), groups=(0, 1, 0))
    assert [one["gpu"] for one in depends] == ["A", "B"]
    mixed = module._depends(Config(run_dir="unused"), topology, hardware("ABBAAB"), groups=(0, 1, 0))
    assert [one["gpu"] for one in mixed] == ["A + B", "B + A"]


@pytest.mark.parametrize(("pipeline", "stage", "latency_s"), [(0, 0, 0.02), (0, 1, 0.04), (1, 0, 0.06), (1, 1, 0.08)])
def test_ranks_that_share_instructions_reckon_with_the_slowest_switch_among_them(pipeline, stage, latency_s):
    of_ranks_s = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.07]
    topology = Topology(0, 8, pipeline, 2, stage, 2, shard_size=2)
    assert module._shared_latency_s(hardware("AAAAAAAA", of_ranks_s), topology) == latency_s
