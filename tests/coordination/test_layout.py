"""Who talks to whom, for any way of numbering the ranks."""

from datetime import timedelta

import pytest
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_threads import on_ranks
from torch.distributed import DistStoreError

from perseus_ds.coordination.layout import Layout, find_layout
from perseus_ds.pipeline.events import Topology


@st.composite
def jobs(draw) -> list[Topology]:
    """All ranks of a job, numbered in any order."""
    pipelines, stages, shards = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    places = [(p, s, t) for p in range(pipelines) for s in range(stages) for t in range(shards)]
    return [
        Topology(rank, len(places), pipeline, pipelines, stage, stages, shard, shards)
        for rank, (pipeline, stage, shard) in enumerate(draw(st.permutations(places)))
    ]


@settings(max_examples=40)
@given(job=jobs())
def test_a_pipeline_s_ranks_know_each_other_in_order_and_everybody_the_leaders(job):
    store = dist.HashStore()
    layouts = on_ranks(len(job), lambda rank: find_layout(job[rank], store, 10.0))
    for topology, layout in zip(job, layouts, strict=True):
        members = [job[rank] for rank in layout.members]
        assert [(one.pipeline, one.stage, one.shard_rank) for one in members] == [
            (topology.pipeline, stage, shard)
            for stage in range(topology.stages)
            for shard in range(topology.shard_size)
        ]
        assert [(job[rank].pipeline, job[rank].stage, job[rank].shard_rank) for rank in layout.leaders] == [
            (pipeline, 0, 0) for pipeline in range(topology.pipelines)
        ]
        assert layout.coordinator == layouts[0].coordinator
        assert layout.topology == topology
    assert sorted(layout.place for layout in layouts) == list(range(len(job)))


def test_work_goes_to_all_leaders_then_to_their_second_ranks():
    members = [1, 5, 3]
    layouts = [Layout(members, [0, 1], Topology(rank, 6, 1, 2, stage, 3)) for stage, rank in enumerate(members)]
    assert [layout.place for layout in layouts] == [1, 3, 5]


def expert_parallel_job(replicas: int, experts: int, stages: int = 2) -> list[Topology]:
    """Ranks by stage, then replica; each ``experts`` neighbours of a stage exchange tokens."""
    ranks = [(stage, replica) for stage in range(stages) for replica in range(replicas)]
    return [
        Topology(
            rank,
            len(ranks),
            replica,
            replicas,
            stage,
            stages,
            axes=(("expert", tuple(rank - replica % experts + peer for peer in range(experts))),),
        )
        for rank, (stage, replica) in enumerate(ranks)
    ]


def test_expert_parallel_ranks_are_one_pipeline_that_runs_in_step():
    store, job = dist.HashStore(), expert_parallel_job(replicas=4, experts=2)
    layouts = on_ranks(len(job), lambda rank: find_layout(job[rank], store, 10.0))
    found = [layout.topology for layout in layouts]
    assert [(one.pipeline, one.stage, one.shard_rank) for one in found] == [
        (replica // 2, stage, replica % 2) for stage in range(2) for replica in range(4)
    ]
    assert {(one.pipelines, one.shard_size) for one in found} == {(2, 2)}
    assert [layouts[0].members, layouts[2].members] == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_groups_that_overlap_join_all_that_they_reach():
    """Ranks 0-1 and 2-3 share weights, 0-2 and 1-3 experts: nobody is independent of anybody."""
    axes = [{0: 1, 1: 0, 2: 3, 3: 2}, {0: 2, 2: 0, 1: 3, 3: 1}]
    job = [
        Topology(rank, 4, rank, 4, 0, 1, axes=(("weights", (rank, axes[0][rank])), ("expert", (rank, axes[1][rank]))))
        for rank in range(4)
    ]
    store = dist.HashStore()
    layouts = on_ranks(4, lambda rank: find_layout(job[rank], store, 10.0))
    assert [(one.topology.pipelines, one.topology.shard_rank) for one in layouts] == [(1, rank) for rank in range(4)]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_stays_away_is_not_waited_for_longer_than_the_timeout(rank):
    store = dist.HashStore()
    store.set_timeout(timedelta(seconds=60))
    with pytest.raises(DistStoreError):
        find_layout(Topology(rank, 2, 0, 1, rank, 2), store, 0.2)
