"""The energy of each rank and kind, in jobs that may set no clocks: DeepSpeed and Megatron-Core."""

import csv
import json
from statistics import median

import pytest
from launching import DS_CONFIG, QUICK, ROOT, TRAIN, deepspeed_command, run, torchrun_command, write_config
from prometheus_client.parser import text_string_to_metric_families

from perseus_ds.simulator.truth import read_truth

pytestmark = [
    pytest.mark.launch,
    pytest.mark.against_the_clock("energies of instructions of 60 ms on two cores are compared with the truth"),
]

MEGATRON = ROOT / "examples" / "megatron_gpt" / "train.py"
EVERY, STEPS, MICROBATCHES = 10, 30, 8


@pytest.mark.parametrize("framework", ["deepspeed", "megatron"])
def test_a_job_that_only_observes_tells_the_energy_of_each_rank_and_kind(framework, tmp_path):
    config = write_config(
        tmp_path,
        mode="observe",
        simulator={**QUICK["simulator"], "time_scale": 0.6},
        report={"energy_every": EVERY, "prometheus_textfile": str(tmp_path / "perseus.prom")},
    )
    arguments = ["--perseus", config, "--steps", STEPS, "--layers", 2]
    if framework == "deepspeed":
        ds_config = tmp_path / "ds.json"
        monitor = {"csv_monitor": {"enabled": True, "output_path": str(tmp_path), "job_name": "monitor"}}
        ds_config.write_text(json.dumps(json.loads(DS_CONFIG.read_text()) | monitor))
        job = deepspeed_command(2, "--module", "perseus_ds", "run", TRAIN, "--deepspeed_config", ds_config, *arguments)
    else:
        job = torchrun_command(2, "-m", "perseus_ds", "run", MEGATRON, *arguments)
    done = run(job)
    assert done.returncode == 0, done.stdout

    with (tmp_path / "run" / "energy.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    splits = sorted({int(row["iteration"]) for row in rows})
    assert splits[0] > EVERY, "known some iterations after it was asked for"
    assert {(row["rank"], row["pipeline"], row["stage"]) for row in rows} == {("0", "0", "0"), ("1", "0", "1")}
    counts = {row["kind"]: float(row["instructions"]) for row in rows}
    assert counts["forward"] == counts["backward"] == MICROBATCHES
    assert "waiting" in counts

    measured = json.loads((tmp_path / "run" / "iterations.json").read_text())
    energies_j = [row["energy_j"] for row in measured if row["phase"] == "baseline" and row["energy_j"]]
    first = [row for row in rows if int(row["iteration"]) == splits[0]]
    assert sum(float(row["energy_j"]) for row in first) == pytest.approx(median(energies_j), rel=0.2)
    own_j = {(int(row["stage"]), row["kind"]): float(row["energy_j"]) for row in first}
    for truth in read_truth(tmp_path / "run" / "gpus", []):
        for (key, _), cost in truth.instructions.items():
            assert own_j[key.stage, key.kind.value] == pytest.approx(MICROBATCHES * cost.energy_j, rel=0.35)

    metrics = text_string_to_metric_families((tmp_path / "perseus.prom").read_text())
    samples = next(family.samples for family in metrics if family.name == "perseus_ds_rank_energy_joules")
    last = {(row["rank"], row["kind"]): float(row["energy_j"]) for row in rows if int(row["iteration"]) == splits[-1]}
    shown = {(one.labels["rank"], one.labels["kind"]): one.value for one in samples}
    assert shown == pytest.approx(last, rel=1e-4, abs=1e-3)
    if framework == "deepspeed":  # Megatron-LM's monitors are those of pretrain_gpt.py alone
        told = (tmp_path / "monitor" / "perseus_ds_rank_1_stage_1_forward_energy_joules.csv").read_text().splitlines()
        assert len(told) == 1 + len(splits)
