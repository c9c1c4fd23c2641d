"""One job of ``make worlds``: on a model with limits, and its row of the table."""

import importlib.util
import sys

import pytest
import yaml
from by_hand import by_hand
from launching import ROOT

from perseus_ds.report.rundata import read_run
from perseus_ds.simulator.truth import read_truth

spec = importlib.util.spec_from_file_location("worlds", ROOT / "benchmarks" / "worlds.py")
assert spec is not None
assert spec.loader is not None
worlds = sys.modules["worlds"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worlds)


@pytest.mark.launch
def test_a_job_leaves_its_row_and_virtual_time_is_kept_on_busy_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(worlds, "RUNS", tmp_path)
    case = worlds.CASES[0]
    data = read_run(worlds.run("a100", case, steps=90))
    row = worlds.row("a100", case, data)
    assert (row["world"], row["framework"], row["schedule"]) == ("a100", "deepspeed", "1f1b PP4")
    assert row["measured_time_s"] == pytest.approx(row["true_time_s"], rel=0.01)
    assert row["false_stragglers"] >= 0
    assert row["curve_time_rms"] < 0.1
    assert 0.0 < row["true_saving"] < 0.3
    # A host with too few cores delays some iterations; those that it does not delay last equally long.
    lasted_s = [one["iteration_time_s"] for one in data.iterations if one["phase"] == "baseline"]
    # A late plan's first refresh meets the job's end: the last two iterations have no time.
    first_s, second_s = sorted(time_s for time_s in lasted_s if time_s is not None)[:2]
    assert second_s / first_s - 1.0 < 0.02
    assert worlds.table([row]).count("\n") == 2


def test_rows_are_counted_by_what_is_right_in_them():
    row = {
        "world": "a100",
        "framework": "megatron",
        "schedule": "1f1b PP4",
        **dict.fromkeys(("predicted_time_s", "measured_time_s", "true_time_s"), 0.7),
        **dict.fromkeys(("predicted_saving", "claimed_saving", "true_saving"), 0.1),
        "saving_interval": [0.09, 0.11],
        **dict.fromkeys(("time_error", "saving_error", "true_slowdown"), 0.005),
        **dict.fromkeys(("curve_time_rms", "curve_energy_rms", "curve_energy_told"), 0.01),
        **dict.fromkeys(("curve_time_worst", "curve_energy_worst"), 0.03),
        **dict.fromkeys(("false_stragglers", "false_drifts", "late_switches", "host_ahead"), 1),
    }
    claims_too_much = row | {"saving_error": 0.02, "true_saving": 0.08, "time_error": -0.011}
    claims_too_much |= {"curve_energy_rms": 0.012, "curve_time_worst": 0.031}
    never_planned = row | dict.fromkeys(("time_error", "claimed_saving", "saving_error", "saving_interval"))
    counted = worlds.counts(worlds.table([row, claims_too_much, never_planned])).splitlines()
    assert "(3 jobs)" in counted[0]
    assert [line.split("|")[3].strip() for line in counted[2:]] == ["1", "1", "1", "1", "3", "2", "2", "3", "3"]


def test_every_model_and_job_has_a_configuration(tmp_path):
    from perseus_ds.config import Config

    for gpu in worlds.MODELS:
        for case in worlds.CASES:
            config = Config.model_validate(worlds.configuration(gpu, case, tmp_path))
            assert config.simulator is not None
            assert bool(config.simulator.throttle) == case.straggler


@pytest.mark.launch
@pytest.mark.parametrize("queue", [2, 3])
def test_interleaved_with_overlap_the_host_is_ahead_by_the_launch_queue(tmp_path, queue):
    config = {
        "run_dir": str(tmp_path / "run"),
        "mode": "observe",
        "report": {"html": False},
        "simulator": {"gpu": "kind", "stages": [4, 5, 6, 7], "time_scale": 2.0, "launch_queue": queue},
    }
    (tmp_path / "perseus.yaml").write_text(yaml.safe_dump(config))
    script = [ROOT / "examples" / "megatron_gpt" / "train.py", "--chunks", 2, "--overlap", "--steps", 3]
    done = by_hand(4, "-m", "perseus_ds", "run", *script, "--perseus", tmp_path / "perseus.yaml")
    assert done.returncode == 0, done.stdout
    truths = read_truth(tmp_path / "run" / "gpus", [])
    assert max(truth.host_ahead for truth in truths) == queue
