"""A group's members connect over a store that is asked once for all of them."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from rank_threads import on_ranks

from perseus_ds.coordination.gloo_group import GlooGroup
from perseus_ds.coordination.group_store import GroupStore, values_of


class Counting(dist.Store):
    """Counts the requests to a store; without ``multi_get``, as some stores are."""

    def __init__(self) -> None:
        super().__init__()
        self._inner = dist.HashStore()
        self.asked = []

    def set(self, key, value):
        self.asked.append("set")
        self._inner.set(key, value)

    def wait(self, keys, timeout=timedelta(seconds=10.0)):
        self.asked.append("wait")
        self._inner.wait(keys, timeout)

    def get(self, key):
        self.asked.append("get")
        return self._inner.get(key)


class CountingMany(Counting):
    """Such a store with ``multi_get``."""

    def has_extended_api(self):
        return True

    def multi_get(self, keys):
        self.asked.append("multi_get")
        return self._inner.multi_get(keys)


@pytest.mark.parametrize("members", [2, 6])
def test_a_group_connects_with_three_requests_of_each_member(members):
    store = CountingMany()

    def gathered(rank: int) -> list[float]:
        group = GlooGroup(list(range(members)), rank, store, "group", 10.0, 10.0, threading.Event())
        return group.all_gather(torch.tensor([float(rank)])).flatten().tolist()

    assert on_ranks(members, gathered) == [[*map(float, range(members))]] * members
    assert sorted(store.asked) == sorted(["set", "wait", "multi_get"] * members)


def test_a_store_that_gives_one_value_per_request_serves_too():
    store = Counting()
    store.set("a", b"1")
    store.set("b", b"2")
    assert values_of(store, ["b", "a"]) == [b"2", b"1"]

    def member(rank: int) -> bytes:
        own = GroupStore(store, 2, rank, 10.0)
        own.set(f"address/{rank}", b"%d" % rank)
        return own.get(f"address/{1 - rank}")

    assert on_ranks(2, member) == [b"1", b"0"]


def test_what_a_member_writes_later_is_found_as_well():
    store = dist.HashStore()

    def member(rank: int) -> bytes:
        own = GroupStore(store, 2, rank, 10.0)
        own.set(f"first/{rank}", b"")
        own.wait([f"first/{1 - rank}"])
        if rank:
            time.sleep(0.2)
            own.set("late", b"here")
        own.wait(["late"])
        return own.get("late")

    assert on_ranks(2, member) == [b"here"] * 2


def test_members_that_connect_lazily_need_not_talk_at_the_same_time(monkeypatch):
    monkeypatch.setenv("TORCH_GLOO_LAZY_INIT", "1")
    store = dist.HashStore()

    def member(rank: int) -> list[float]:
        group = GlooGroup([0, 1], rank, store, "lazy", 1.0, 30.0, threading.Event())
        time.sleep(2.0 * rank)  # longer than members may take to meet
        return group.all_gather(torch.tensor([float(rank)])).flatten().tolist()

    assert on_ranks(2, member) == [[0.0, 1.0]] * 2


def test_a_member_that_never_comes_is_an_error_after_the_time_out():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    begin_s = time.monotonic()
    with ThreadPoolExecutor(1) as thread:
        alone = thread.submit(GlooGroup, [0, 1], 0, store, "alone", 0.5, 10.0, threading.Event())
        assert isinstance(alone.exception(10.0), dist.DistStoreError), "a timeout, as ``attach`` sees it"
    assert time.monotonic() - begin_s < 5.0
