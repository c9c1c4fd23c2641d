"""Who writes metrics, and where."""

import pytest

from perseus_ds.config import parse_config
from perseus_ds.patches import monitors
from perseus_ds.pipeline.events import Topology
from perseus_ds.report.metrics import FrameworkMonitor, PrometheusTextfile
from perseus_ds.report.sinks import metric_sinks

FIRST = Topology(rank=0, world_size=2, pipeline=0, pipelines=1, stage=0, stages=2, framework="deepspeed 0.19.8")


def sinks_of(tmp_path, coordinates=True, **report):
    config = parse_config({"run_dir": str(tmp_path / "run"), "simulator": {}, "report": report}, "perseus.yaml")
    return metric_sinks(config, FIRST, coordinates)


def test_without_a_file_and_a_monitor_nothing_is_written(tmp_path):
    assert sinks_of(tmp_path) == []


def test_the_coordinating_rank_alone_writes_the_textfile(tmp_path):
    file = tmp_path / "perseus.prom"
    (sink,) = sinks_of(tmp_path, prometheus_textfile=str(file))
    assert isinstance(sink, PrometheusTextfile)
    sink.write(1, {"switches": 3.0})
    assert '{run="run",framework="deepspeed 0.19.8",gpus="simulated"} 3' in file.read_text()
    assert sinks_of(tmp_path, coordinates=False, prometheus_textfile=str(file)) == []


@pytest.mark.parametrize(("wanted", "count"), [(True, 1), (False, 0)])
def test_the_framework_s_monitor_is_used_unless_it_is_switched_off(tmp_path, monkeypatch, wanted, count):
    rows = []
    monkeypatch.setattr("perseus_ds.report.sinks.framework_monitors", lambda coordinates: [rows.extend])
    assert monitors.framework_monitors(True) == []
    sinks = sinks_of(tmp_path, tensorboard=wanted)
    assert [type(sink) for sink in sinks] == [FrameworkMonitor] * count
