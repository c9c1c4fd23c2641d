"""The file with the energy of each rank and kind."""

import csv

from perseus_ds.coordination.events import EnergySplitKnown
from perseus_ds.profiling.breakdown import KindEnergy, RankEnergy
from perseus_ds.report.energy_file import ENERGY_FILE, EnergyFile
from perseus_ds.rundir import RunDirectory


def test_each_split_appends_a_row_per_rank_and_kind(tmp_path):
    forward, waiting = KindEnergy("forward", 8.0, 0.4, 80.25), KindEnergy("waiting", 0.0, 0.1, 8.0)
    rows = (RankEnergy(2, 0, 1, forward), RankEnergy(2, 0, 1, waiting), RankEnergy(3, 1, 1, forward))

    for iteration in (201, 401):  # the second one of a job that was resumed
        directory = RunDirectory(tmp_path)
        writes = EnergyFile(directory)
        writes(EnergySplitKnown(iteration, rows, rows, {"forward": 80.25}))
        writes(EnergySplitKnown(iteration, (), rows, {}))
        assert directory.flush()
        assert directory.failure is None

    with (tmp_path / ENERGY_FILE).open(newline="") as file:
        read = list(csv.DictReader(file))
    assert len(read) == 6
    assert read[0] == {
        "iteration": "201",
        "rank": "2",
        "pipeline": "0",
        "stage": "1",
        "kind": "forward",
        "instructions": "8",
        "time_s": "0.400000",
        "energy_j": "80.2500",
    }
    assert [row["iteration"] for row in read] == ["201"] * 3 + ["401"] * 3
    assert {row["kind"] for row in read} == {"forward", "waiting"}
