"""Two levels of groups: values up to the coordinator and down to all."""

import time

import pytest
import torch.distributed as dist
from rank_threads import on_ranks

from perseus_ds.coordination.channel import Channel
from perseus_ds.coordination.failure import Failure
from perseus_ds.coordination.layout import Layout
from perseus_ds.pipeline.events import Topology

TWO_PIPELINES = [[0, 2], [1, 3]]


def channels(pipelines: list[list[int]]) -> list[Channel]:
    """One per rank."""
    store, leaders = dist.HashStore(), [members[0] for members in pipelines]
    layouts = {
        rank: Layout(members, leaders, Topology(rank, sum(map(len, pipelines)), number, len(pipelines), 0, 1))
        for number, members in enumerate(pipelines)
        for rank in members
    }
    return on_ranks(len(layouts), lambda rank: Channel(layouts[rank], rank, store, "test", 10.0, 30.0))


@pytest.mark.parametrize("pipelines", [[[0]], [[0, 1, 2]], [[0], [1]], TWO_PIPELINES, [[3, 0, 2], [1, 4, 5]]], ids=str)
def test_values_go_up_in_order_and_the_coordinator_s_comes_down(pipelines):
    ranks = channels(pipelines)
    coordinator, order = pipelines[0][0], [rank for members in pipelines for rank in members]

    def call(rank: int):
        return ranks[rank].gather(f"of {rank}"), ranks[rank].broadcast(f"from {rank}")

    gathered = [f"of {rank}" for rank in order]
    assert on_ranks(len(ranks), call) == [
        (gathered if rank == coordinator else None, f"from {coordinator}") for rank in range(len(ranks))
    ]


def test_a_leader_that_gets_nothing_tells_its_members(monkeypatch):
    ranks = channels(TWO_PIPELINES)
    received = ranks[1].leaders.broadcast_object

    def damaged(value):
        received(value)
        raise OSError("made to fail")

    monkeypatch.setattr(ranks[1].leaders, "broadcast_object", damaged)

    def call(rank: int):
        try:
            return ranks[rank].broadcast("a plan" if rank == 0 else None)
        except OSError as error:
            return str(error)

    healthy, leader, member_of_healthy, member = on_ranks(4, call)
    assert healthy == member_of_healthy == "a plan"
    assert leader == "made to fail"
    assert isinstance(member, Failure)
    assert member.line == "OSError: made to fail"


def test_at_the_end_a_call_that_hangs_is_given_up():
    first, second = channels([[0, 1]])
    hanging = first.thread.submit(lambda: first.gather(None))  # the other rank says nothing
    begin_s = time.monotonic()
    first.end(0.1)
    assert time.monotonic() - begin_s < 2.0
    assert type(hanging.exception(timeout=2.0)).__name__ == "GroupClosed"
    second.end(0.1)


def test_at_the_end_a_call_under_way_is_given_its_time():
    first, second = channels([[0, 1]])
    gathered = first.thread.submit(lambda: first.gather("a"))
    second.thread.submit(lambda: (time.sleep(0.3), second.gather("b")))
    on_ranks(2, lambda rank: (first, second)[rank].end(5.0))
    assert gathered.result(timeout=0) == ["a", "b"]
