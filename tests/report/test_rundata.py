"""What a run directory tells: intervals from its steady iterations."""

import json

import numpy as np
import pytest

from perseus_ds.report.rundata import read_run


def test_the_confidence_interval_holds_the_true_saving(tmp_path):
    random = np.random.default_rng(3)
    rows = [
        {"iteration": i, "phase": phase, "steady": True, "energy_j": random.normal(mean, 8.0), "iteration_time_s": 1.0}
        for i, (phase, mean) in enumerate([("baseline", 1000.0)] * 20 + [("enforcing", 880.0)] * 20)
    ]
    rows.append({"iteration": 40, "phase": "enforcing", "steady": False, "energy_j": 9e9, "iteration_time_s": 9.0})
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "iterations.json").write_text(json.dumps(rows))
    saving = read_run(tmp_path).confidence("energy_j")
    assert saving.low < 0.12 < saving.high
    assert saving.high - saving.low < 0.02
    slowdown = read_run(tmp_path).confidence("iteration_time_s")
    assert (slowdown.low, slowdown.high) == (0.0, 0.0)


@pytest.mark.parametrize("baselines", [3, 6, 40])
def test_the_interval_of_the_saving_holds_the_truth_however_few_baselines_there_are(tmp_path, baselines):
    random = np.random.default_rng(baselines)
    (tmp_path / "summary.json").write_text("{}")
    held = 0
    for _ in range(300):
        phases = [("baseline", 1000.0)] * baselines + [("enforcing", 900.0)] * 50
        energies_j = [(phase, mean * random.normal(1.0, 0.02)) for phase, mean in phases]
        rows = [
            {"iteration": i, "phase": phase, "steady": True, "energy_j": energy_j, "iteration_time_s": 1.0}
            for i, (phase, energy_j) in enumerate(energies_j)
        ]
        (tmp_path / "iterations.json").write_text(json.dumps(rows))
        saving = read_run(tmp_path).confidence("energy_j")
        held += saving.low <= 0.1 <= saving.high
    assert 0.9 < held / 300 < 0.99


def test_the_saving_over_time_is_that_of_the_latest_refreshes_with_its_interval(tmp_path):
    """The interval of Student's t: of the normal mean of few values, it holds the truth 95 times of 100."""
    random = np.random.default_rng(5)
    held = 0
    for _ in range(400):
        savings = random.normal(0.12, 0.02, 5)
        points = savings_of(
            tmp_path, [{"event": "baseline", "iteration": i, "saving": s} for i, s in enumerate(savings)]
        )
        assert [point.iteration for point in points] == [0, 1, 2, 3, 4]
        assert [point.half_width is None for point in points] == [True, True, False, False, False]
        assert points[-1].saving == pytest.approx(savings.mean())
        held += abs(points[-1].saving - 0.12) <= points[-1].half_width
    assert 0.92 < held / 400 < 0.98


def test_the_saving_over_time_counts_eight_refreshes_and_none_of_other_plans(tmp_path):
    first = [{"event": "baseline", "iteration": i, "saving": 0.1} for i in range(10)]
    second = [{"event": "baseline", "iteration": 10 + i, "saving": 0.2} for i in range(9)]
    points = savings_of(tmp_path, [*first, *second])
    assert [round(points[10 + i].saving, 4) for i in (0, 3, 7, 8)] == [0.1125, 0.15, 0.2, 0.2]
    anew = savings_of(tmp_path, [*first, {"event": "plans", "iteration": 10}, *second])
    assert [point.saving for point in anew[9:11]] == pytest.approx([0.1, 0.2])


def test_from_the_third_refresh_on_their_spread_is_the_saving_s_interval(tmp_path):
    points = savings_of(
        tmp_path,
        [{"event": "baseline", "iteration": i, "saving": saving} for i, saving in enumerate((0.1, 0.12, 0.11))],
    )
    interval = read_run(tmp_path).confidence("energy_j")
    assert points[-1].half_width == pytest.approx(4.303 * 0.01 / 3**0.5)
    assert (interval.low, interval.high) == pytest.approx((0.11 - points[-1].half_width, 0.11 + points[-1].half_width))


def savings_of(directory, events):
    (directory / "summary.json").write_text("{}")
    (directory / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return read_run(directory).savings()
