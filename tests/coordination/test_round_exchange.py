"""Rounds: a row per pipeline for everybody, whatever the job's shape."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch.distributed as dist
from rank_threads import on_ranks

from perseus_ds.coordination.channel import Channel
from perseus_ds.coordination.layout import Layout
from perseus_ds.coordination.round_exchange import exchange_round
from perseus_ds.pipeline.events import Topology


@pytest.mark.parametrize(("pipelines", "size"), [(1, 1), (1, 3), (3, 1), (2, 3)])
def test_everybody_sees_what_every_pipeline_makes_of_its_ranks_in_order(pipelines, size):
    members = [[pipelines * stage + pipeline for stage in range(size)] for pipeline in range(pipelines)]
    layouts = {
        rank: Layout(
            ranks, [one[0] for one in members], Topology(rank, pipelines * size, number, pipelines, stage, size)
        )
        for number, ranks in enumerate(members)
        for stage, rank in enumerate(ranks)
    }
    store = dist.HashStore()

    def condense(rows: np.ndarray) -> np.ndarray:
        """The first rank's first float, the last rank's, and a sum of all second ones."""
        return np.array([rows[0, 0], rows[-1, 0], rows[:, 1].sum()])

    def call(rank: int) -> list[np.ndarray]:
        channel = Channel(layouts[rank], rank, store, "rounds", 10.0, 30.0)
        return [
            exchange_round(channel, np.array([number + rank / 8, 0.5**rank]), condense, width=3) for number in range(3)
        ]

    for rounds in on_ranks(pipelines * size, call):
        for number, rows in enumerate(rounds):
            assert rows.dtype == np.float64
            expected = [[number + r[0] / 8, number + r[-1] / 8, sum(0.5**rank for rank in r)] for r in members]
            assert rows.tolist() == expected


def test_where_the_pipelines_do_not_reach_each_other_all_their_ranks_hear_of_it_at_once():
    store = dist.HashStore()

    def call(rank: int) -> str:
        layout = Layout([0, 1], [0], Topology(rank, 2, 0, 1, rank, 2))
        channel = Channel(layout, rank, store, "rounds", 10.0, 30.0)

        def unreachable(row):
            raise TimeoutError("no answer")

        channel.leaders = SimpleNamespace(all_gather=unreachable) if rank == 0 else None
        channel.pipelines = 2
        try:
            exchange_round(channel, np.array([1.0]), lambda rows: rows[0], width=1)
        except Exception as error:
            return str(error)
        return "heard"

    assert on_ranks(2, call) == ["no answer", "the round has failed between the pipelines"]
