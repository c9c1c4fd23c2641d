"""A gloo group between threads, and what it does when something fails."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_threads import on_ranks

from perseus_ds.coordination import gloo_group as module
from perseus_ds.coordination.gloo_group import GlooGroup, GroupClosed
from perseus_ds.messages import PerseusError

SIZE = 3


def connected(size: int = SIZE, call_s: float = 30.0, closed: threading.Event | None = None) -> list[GlooGroup]:
    store, closed = dist.HashStore(), closed or threading.Event()
    return on_ranks(size, lambda rank: GlooGroup(list(range(size)), rank, store, "test", 10.0, call_s, closed))


@pytest.fixture(scope="module")
def groups() -> list[GlooGroup]:
    return connected()


def test_members_are_numbered_in_the_order_given():
    store = dist.HashStore()
    groups = on_ranks(2, lambda index: GlooGroup([7, 4], [7, 4][index], store, "order", 10.0, 10.0, threading.Event()))
    assert [(group.index, group.size) for group in groups] == [(0, 2), (1, 2)]


def test_tensors_of_all_members_are_gathered_in_order(groups):
    def call(rank: int):
        mine = torch.tensor([float(rank), 0.5])
        return groups[rank].all_gather(mine).tolist(), [row.tolist() for row in groups[rank].gather(mine)]

    everything = [[float(rank), 0.5] for rank in range(SIZE)]
    assert on_ranks(SIZE, call) == [(everything, everything), (everything, []), (everything, [])]


def test_the_first_member_s_tensor_is_everybody_s(groups):
    assert on_ranks(SIZE, lambda rank: groups[rank].broadcast(torch.tensor([rank + 5])).item()) == [5] * SIZE


@settings(max_examples=25)
@given(values=st.lists(st.one_of(st.none(), st.text(), st.binary(max_size=5000)), min_size=SIZE, max_size=SIZE))
def test_values_of_any_size_come_through(groups, values):
    def call(rank: int):
        return groups[rank].gather_object(values[rank]), groups[rank].broadcast_object(values[rank])

    assert on_ranks(SIZE, call) == [(values if rank == 0 else None, values[0]) for rank in range(SIZE)]


def test_a_closed_group_uses_torch_no_more(monkeypatch):
    """A thread that comes back from torch at the interpreter's end aborts the process."""
    closed, tensor = threading.Event(), torch.zeros(1)
    (group,) = connected(1, closed=closed)
    closed.set()
    monkeypatch.setattr(module, "torch", None)
    for call, argument in (
        (group.gather_object, 1),
        (group.broadcast_object, 1),
        (group.all_gather, tensor),
        (group.broadcast, tensor),
        (group.gather, tensor),
    ):
        with pytest.raises(GroupClosed):
            call(argument)


def test_what_is_damaged_on_its_way_is_noticed(monkeypatch):
    groups = connected()
    broadcast = groups[1].broadcast

    def damaged(tensor: torch.Tensor) -> torch.Tensor:
        received = broadcast(tensor)
        if received.dtype == torch.uint8:
            received[received.numel() // 2] ^= 1
        return received

    monkeypatch.setattr(groups[1], "broadcast", damaged)

    def call(rank: int):
        try:
            return groups[rank].broadcast_object("a plan " * 100)
        except PerseusError as error:
            return str(error).split("]")[0]

    first, second, third = on_ranks(SIZE, call)
    assert first == third == "a plan " * 100
    assert "broadcast-damaged" in second


def test_a_call_may_take_longer_than_connecting():
    store, closed = dist.HashStore(), threading.Event()

    def member(rank: int) -> list[float]:
        group = GlooGroup([0, 1], rank, store, "late", 1.0, 30.0, closed)
        time.sleep(2.0 * rank)
        return group.all_gather(torch.tensor([float(rank)])).flatten().tolist()

    assert on_ranks(2, member) == [[0.0, 1.0]] * 2


def test_a_member_that_says_nothing_is_a_timeout():
    first, _ = connected(2, call_s=0.3)
    with pytest.raises(TimeoutError):
        first.all_gather(torch.zeros(1))


def test_a_call_that_hangs_is_left_behind_once_all_is_over():
    closed = threading.Event()
    first, second = connected(2, closed=closed)
    threading.Timer(0.2, closed.set).start()
    begin_s = time.monotonic()
    with pytest.raises(GroupClosed):
        first.all_gather(torch.zeros(1))
    assert 0.1 < time.monotonic() - begin_s < 5.0
    with suppress(GroupClosed):  # let the call end, as the other process's end would
        second.all_gather(torch.zeros(1))


def test_groups_of_different_names_do_not_meet_each_other():
    store, closed = dist.HashStore(), threading.Event()

    def member(rank: int) -> list[list[int]]:
        groups = [GlooGroup([0, 1], rank, store, name, 10.0, 10.0, closed) for name in ("one", "two")]
        return [group.broadcast(torch.tensor([10 * rank + number])).tolist() for number, group in enumerate(groups)]

    assert on_ranks(2, member) == [[[0], [1]]] * 2


@pytest.mark.parametrize("why", ["closed", "a call has failed"])
def test_no_call_begins_on_a_group_whose_members_may_be_at_different_ones(why):
    closed = threading.Event()
    groups = connected(2, call_s=0.3, closed=closed)
    if why == "closed":
        closed.set()
    else:
        with pytest.raises((TimeoutError, RuntimeError)):
            groups[0].broadcast(groups[0].all_gather(torch.ones(1)))
    groups[0]._group = None  # a call would raise AttributeError; gloo itself would end the process
    for call in (groups[0].all_gather, groups[0].broadcast, groups[0].gather):
        with pytest.raises(GroupClosed):
            call(torch.ones(1))


def test_a_group_that_is_done_gives_its_threads_and_connections_back():
    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    connected(2)[0].release()  # whatever gloo keeps for good
    before = held()
    groups = connected(2)
    on_ranks(2, lambda rank: groups[rank].all_gather(torch.ones(1)))
    assert held() > before
    assert [group.release() for group in groups] == [True, True]
    assert [group.release() for group in groups] == [True, True]
    assert held() <= before


def test_a_group_whose_call_hangs_is_kept_until_another_member_lets_it_go():
    closed = threading.Event()
    groups = connected(2, closed=closed)
    with ThreadPoolExecutor(1) as thread:
        hanging = thread.submit(groups[0].all_gather, torch.ones(1))
        time.sleep(0.1)
        closed.set()
        assert isinstance(hanging.exception(10.0), GroupClosed)
    assert not groups[0].release()
    assert groups[1].release()
    deadline_s = time.monotonic() + 10.0
    while not groups[0].release():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
