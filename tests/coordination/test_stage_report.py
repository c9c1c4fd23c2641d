"""What is made of the ranks' reports, where pipelines have two kinds of GPUs."""

import math
from dataclasses import replace

import pytest
from made_up_job import PROFILE, traces

from perseus_ds.coordination import stage_report
from perseus_ds.coordination.derived_profiles import scaled_profile
from perseus_ds.coordination.resume import ResumeData
from perseus_ds.coordination.stage_report import StageReport, group_profiles, group_traces, pipeline_energies_j
from perseus_ds.pipeline.events import Topology

# Three pipelines of two stages of two tensor-parallel ranks; the middle one has other GPUs.
GROUPS = (0, 1, 0)
TOPOLOGIES = [
    Topology(rank, 12, pipeline, 3, stage, 2, shard, 2)
    for rank, (pipeline, stage, shard) in enumerate((p, s, t) for s in range(2) for p in range(3) for t in range(2))
]
MEASURED = scaled_profile(PROFILE, [1.1, 1.1])


@pytest.fixture
def merged(monkeypatch) -> list[list[tuple[int, int]]]:
    """The (pipeline, attribution) pairs that are merged, group by group; an attribution is its rank's number."""
    pairs: list[list[tuple[int, int]]] = []

    def merge(ranks, source):
        assert source == "live profile"
        pairs.append(list(ranks))
        return MEASURED, 70.0 + len(pairs)

    monkeypatch.setattr(stage_report, "merge_profiles", merge)
    return pairs


def reports() -> list[StageReport]:
    return [StageReport(topology, traces()[topology.stage], topology.rank) for topology in TOPOLOGIES]


def test_each_group_has_a_profile_of_what_its_own_ranks_have_measured(merged):
    found = group_profiles(reports(), GROUPS, [ResumeData(), ResumeData()])
    assert found == [(MEASURED, 71.0), (MEASURED, 72.0)]
    for number, pairs in enumerate(merged):
        assert pairs == [(one.pipeline, one.rank) for one in TOPOLOGIES if GROUPS[one.pipeline] == number]
    assert sum(map(len, merged)) == len(TOPOLOGIES)


def test_the_latencies_of_a_group_s_ranks_tell_the_tail(merged):
    late_s = {900: (0.1, 0.1, 0.11, 0.09), 1200: (0.02, 0.02, 0.021, 0.32)}
    late = {mhz: [(one_s, one_s) for one_s in some_s] for mhz, some_s in late_s.items()}
    seen = [replace(one, latencies_s=late if GROUPS[one.topology.pipeline] == 1 else {}) for one in reports()]
    (first, _), (second, _) = group_profiles(seen, GROUPS, [ResumeData(), ResumeData()])
    assert (first.switch_tail_share, first.switch_tail_s) == (0.0, 0.0)
    assert second.switch_tail_share * second.switch_tail_s == pytest.approx(0.3 / 8, rel=0.3)
    assert second.switch_latency_s == {900: pytest.approx(0.1), 1200: pytest.approx(0.021)}
    assert second.curves == MEASURED.curves


def test_a_profile_that_was_known_comes_before_what_is_measured(merged):
    found = group_profiles(reports(), GROUPS, [ResumeData(PROFILE), ResumeData(PROFILE, 50.0)])
    assert found == [(PROFILE, 71.0), (PROFILE, 50.0)]


def test_the_baseline_of_a_pipeline_is_the_mean_of_the_iterations_that_all_ranks_know():
    one = {7: 10.0, 8: 11.0, 9: math.nan}
    seen = [replace(report, baseline_energies_j=one) for report in reports()]
    seen[3] = replace(seen[3], baseline_energies_j={8: 23.0, 9: 12.0})
    assert pipeline_energies_j([one.baseline_energies_j for one in seen], 3) == {
        8: pytest.approx((11 * 11.0 + 23.0) / 3)
    }
    assert pipeline_energies_j([one.baseline_energies_j for one in reports()], 3) == {}


def test_a_group_is_planned_by_the_traces_of_its_first_pipeline_s_first_shards():
    named = [(topology, f"{topology.pipeline} {topology.stage} {topology.shard_rank}") for topology in TOPOLOGIES]
    assert group_traces(named, GROUPS) == [["0 0 0", "0 1 0"], ["1 0 0", "1 1 0"]]
    assert group_traces(named, (1, 0, 1)) == [["1 0 0", "1 1 0"], ["0 0 0", "0 1 0"]]
