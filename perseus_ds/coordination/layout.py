"""The communication partners of each rank on the control bus."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from torch.distributed.distributed_c10d import PrefixStore, Store, _get_default_store

from perseus_ds.coordination.address import address_towards, seen_from_outside, towards_the_job
from perseus_ds.coordination.group_store import values_of
from perseus_ds.pipeline.events import Topology

__all__ = ["Layout", "find_layout", "job_store"]


@dataclass(frozen=True)
class Layout:
    """The communication partners of a rank.

    Attributes:
        members: Ranks of its pipeline, ordered by stage, then shard.
        leaders: The first rank of every pipeline; the first of them coordinates.
        topology: Position of this rank among independent pipelines: replicas that run in step are one.
        address: Where this rank's groups listen; empty: gloo chooses.
    """

    members: list[int]
    leaders: list[int]
    topology: Topology
    address: str = ""

    @property
    def coordinator(self) -> int:
        """The rank that solves and writes."""
        return self.leaders[0]

    @property
    def place(self) -> int:
        """The rank's place in the division of work.

        The leaders of all pipelines come first, then their second ranks, and so on. The shares thus come from all
        nodes.
        """
        return self.members.index(self.topology.rank) * self.topology.pipelines + self.topology.pipeline


def find_layout(topology: Topology, store: Store, timeout_s: float) -> Layout:
    """Exchange the layout among all ranks: one write and three reads per rank.

    Args:
        topology: Position of this rank, as its framework counts the replicas.
        store: The job's key-value store.
        timeout_s: Timeout for the slowest rank.
    """
    timeout, address = timedelta(seconds=timeout_s), towards_the_job()
    in_step = sorted({rank for _, ranks in topology.axes for rank in ranks})
    place = [topology.pipeline, topology.stage, topology.shard_rank, in_step, address]
    store.set(f"place/{topology.rank}", json.dumps(place))
    if topology.rank == 0:
        keys = [f"place/{rank}" for rank in range(topology.world_size)]
        store.wait(keys, timeout)
        places = [json.loads(value) for value in values_of(store, keys)]
        joined = _joined(places, topology.pipelines)
        pipelines: list[list[int]] = [[] for _ in range(1 + max(joined))]
        for rank in sorted(range(topology.world_size), key=lambda rank: (places[rank][1], places[rank])):
            pipelines[joined[places[rank][0]]].append(rank)
        for number, members in enumerate(pipelines):
            store.set(f"members/{number}", json.dumps(members))
        store.set("joined", json.dumps(joined))
        outside = seen_from_outside([place[-1] for place in places])
        store.set("leaders", json.dumps([outside, [members[0] for members in pipelines]]))
    store.wait(["leaders"], timeout)
    outside, leaders = json.loads(store.get("leaders"))
    # On the master's own node its name may be a loopback address: there the route to another node tells.
    if address and outside and not seen_from_outside([address]):
        address = address_towards(outside)
    pipeline = json.loads(store.get("joined"))[topology.pipeline]
    members = json.loads(store.get(f"members/{pipeline}"))
    shard_size = len(members) // topology.stages
    settled = replace(
        topology,
        pipeline=pipeline,
        pipelines=len(leaders),
        shard_rank=members.index(topology.rank) % shard_size,
        shard_size=shard_size,
    )
    return Layout(members, leaders, settled, address)


def _joined(places: Sequence[Sequence[Any]], pipelines: int) -> list[int]:
    """Return the number of the independent pipeline of each replica.

    Args:
        places: Replica, stage, shard, the ranks in step and more, by rank.
        pipelines: Number of replicas, as the framework counts them.
    """
    first = list(range(pipelines))  # of the replicas known to run in step with each, the first
    for replica, _, _, in_step, *_ in places:
        together = {first[replica], *(first[places[rank][0]] for rank in in_step)}
        if len(together) > 1:
            lowest = min(together)
            first = [lowest if one in together else one for one in first]
    numbers = {one: number for number, one in enumerate(sorted(set(first)))}
    return [numbers[one] for one in first]


def job_store() -> Store:
    """Return Perseus's part of the training job's key-value store."""
    return PrefixStore("perseus_ds", _get_default_store())
