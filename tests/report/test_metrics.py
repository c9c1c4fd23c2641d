"""Metrics: every sink gets every figure, and one that breaks is dropped."""

import json
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from perseus_ds.profiling.breakdown import KindEnergy, RankEnergy
from perseus_ds.report.metrics import METRICS, FrameworkMonitor, Metrics, PrometheusTextfile


def test_the_prometheus_file_is_what_a_scraper_understands(tmp_path):
    file = tmp_path / "perseus.prom"
    PrometheusTextfile(file, {"run": 'odd "name"\\'}).write(7, {"energy_joules": 2061.5, "switches": 38.0})
    metrics = {family.name: family.samples[0] for family in text_string_to_metric_families(file.read_text())}
    assert metrics["perseus_ds_energy_joules"].value == 2061.5
    assert metrics["perseus_ds_iteration"].value == 7
    assert metrics["perseus_ds_switches"].labels == {"run": 'odd "name"\\'}


def test_unknown_values_are_left_out_and_a_broken_sink_is_dropped_after_one_word():
    rows, words = [], []

    class Broken:
        def write(self, iteration, values, ranks):
            raise OSError("disk full")

    metrics = Metrics([Broken(), FrameworkMonitor(rows.extend)], words.append)
    for iteration in range(2):
        metrics.write(iteration, {"energy_joules": float("nan"), "switches": 3})
    assert rows == [("perseus_ds/switches", 3.0, 0), ("perseus_ds/switches", 3.0, 1)]
    assert words == ["Broken: disk full"]


SPLIT = (
    RankEnergy(3, 1, 1, KindEnergy("forward", 2.0, 0.4, 150.5)),
    RankEnergy(3, 1, 1, KindEnergy("waiting", 0.0, 0.1, 9.0)),
    RankEnergy(None, None, 0, KindEnergy("forward", 2.0, 0.4, 140.0)),
)


def test_each_rank_s_energy_is_a_labelled_series_on_prometheus(tmp_path):
    file = tmp_path / "perseus.prom"
    PrometheusTextfile(file, {"run": "mine"}).write(7, {"switches": 38.0}, SPLIT)
    families = {family.name: family for family in text_string_to_metric_families(file.read_text())}
    samples = families["perseus_ds_rank_energy_joules"].samples
    assert [sample.value for sample in samples] == [150.5, 9.0, 140.0]
    assert samples[0].labels == {"run": "mine", "rank": "3", "pipeline": "1", "stage": "1", "kind": "forward"}
    assert samples[2].labels == {"run": "mine", "stage": "0", "kind": "forward"}, "the mean of a stage's many ranks"


def test_each_split_reaches_the_framework_s_monitor_once():
    rows = []
    monitor = FrameworkMonitor(rows.extend)
    for iteration, split in enumerate([(), SPLIT, SPLIT, SPLIT, SPLIT[:1]]):
        monitor.write(iteration, {}, split)
    tags = ["rank_3_stage_1/forward", "rank_3_stage_1/waiting", "stage_0/forward"]
    told = [(f"perseus_ds/{tag}_energy_joules", one.energy.energy_j, 1) for tag, one in zip(tags, SPLIT, strict=True)]
    assert rows[:3] == told
    assert [step for *_, step in rows] == [1, 1, 1, 4]


@pytest.mark.launch
def test_a_run_s_metrics_reach_prometheus_and_deepspeed_s_tensorboard(finished_run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    text = (finished_run.parent / "perseus.prom").read_text()
    assert set(re.findall(r"^perseus_ds_(\w+)\{", text, re.MULTILINE)) == {*METRICS, "iteration"}
    assert 'gpus="simulated"' in text

    events = EventAccumulator(str(finished_run.parent / "tensorboard" / "job"))
    events.Reload()
    # At the steps of DeepSpeed's own rows: an iteration is agreed on when the next one has ended.
    steps = [event.step for event in events.Scalars("Train/Samples/train_loss")]
    written = {steps.index(event.step) - 1: event.value for event in events.Scalars("perseus_ds/energy_joules")}
    recorded = json.loads((finished_run / "iterations.json").read_text())
    # Once there are powers, the run directory tells what the counter has missed of baselines and the plan beside them.
    counted = [row for row in recorded if row["phase"] == "profiling" or not row["steady"]]
    as_counted = [row for row in counted if row["energy_j"] is not None and row["phase"] != "baseline"]
    energies = {row["iteration"] + 1: row["energy_j"] for row in as_counted}
    shared = written.keys() & energies.keys()
    assert len(shared) >= 8
    assert all(written[step] == pytest.approx(energies[step], rel=1e-5) for step in shared)
