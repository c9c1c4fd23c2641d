"""The ranks' reports for planning, merged for each pipeline group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

from perseus_ds.coordination.resume import ResumeData
from perseus_ds.pipeline.events import Topology
from perseus_ds.pipeline.trace import StageTrace
from perseus_ds.profiling.energy import Attribution
from perseus_ds.profiling.latencies import Bounds, latency_spread, usual_latencies_s
from perseus_ds.profiling.merge import merge_profiles
from perseus_ds.profiling.table import Profile

__all__ = ["StageReport", "group_profiles", "group_traces", "pipeline_energies_j"]


@dataclass(frozen=True)
class StageReport:
    """The measurements of one rank.

    Attributes:
        topology: Position of the rank.
        trace: Its median baseline iteration.
        attribution: Its profile.
        baseline_energies_j: Its energy in each iteration of the baseline; see ``whole_energies``.
        counter_lag_s: How long its energy counter takes to show a change of the power.
        latencies_s: Latencies by clock in MHz, while no limit held the GPU.
    """

    topology: Topology
    trace: StageTrace
    attribution: Attribution
    baseline_energies_j: Mapping[int, float] = field(default_factory=dict)
    counter_lag_s: float = 0.0
    latencies_s: Mapping[int, Sequence[Bounds]] = field(default_factory=dict)


def group_profiles(
    reports: Sequence[StageReport], groups: Sequence[int], knowledge: Sequence[ResumeData]
) -> list[tuple[Profile, float]]:
    """Merge the reports of each pipeline group.

    Args:
        reports: One per rank.
        groups: Group number of each pipeline.
        knowledge: Earlier results of each group; they take precedence over measurements.

    Returns:
        Profile and blocking power in watts, by group.

    Raises:
        PerseusError: A stage lacks its forward or its backward.
    """
    found = []
    for number, known in enumerate(knowledge):
        mine = [report for report in reports if groups[report.topology.pipeline] == number]
        profile, blocking_power_w = merge_profiles(
            [(report.topology.pipeline, report.attribution) for report in mine], "live profile"
        )
        latencies_s = [report.latencies_s for report in mine]
        profile = replace(profile, switch_latency_s=usual_latencies_s(latencies_s))
        if spread := latency_spread(latencies_s):
            profile = replace(profile, switch_tail_share=spread.tail_share, switch_tail_s=spread.tail_s)
        if known.profile is not None:
            profile, blocking_power_w = known.profile, known.blocking_power_w or blocking_power_w
        found.append((profile, blocking_power_w))
    return found


def pipeline_energies_j(ranks: Sequence[Mapping[int, float]], pipelines: int) -> dict[int, float]:
    """Return the energy of one pipeline, the mean over all, in each iteration that all ranks know.

    Args:
        ranks: Every rank's energies by iteration.
        pipelines: Number of pipelines.
    """
    common = set.intersection(*map(set, ranks)) if ranks else set()
    sums_j = {number: sum(one[number] for one in ranks) for number in sorted(common)}
    return {number: total_j / pipelines for number, total_j in sums_j.items() if isfinite(total_j)}


def group_traces(traces: Sequence[tuple[Topology, StageTrace]], groups: Sequence[int]) -> list[list[StageTrace]]:
    """Return the traces of each group's first pipeline, one per stage.

    Args:
        traces: Every rank's.
        groups: Group number of each pipeline.
    """
    firsts = [groups.index(number) for number in sorted(set(groups))]
    return [
        [trace for topology, trace in traces if topology.pipeline == first and topology.shard_rank == 0]
        for first in firsts
    ]
