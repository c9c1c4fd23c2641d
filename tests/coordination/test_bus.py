"""The bus between real processes: two pipelines of two stages."""

import os
import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import pytest
import torch.distributed as dist
from by_hand import PROCESSES
from launching import free_port
from rank_threads import on_ranks

from perseus_ds.coordination import bus as bus_module
from perseus_ds.coordination import gloo_group
from perseus_ds.coordination.bus import Bus
from perseus_ds.messages import RemoteError
from perseus_ds.pipeline.events import Topology

PIPELINES, STAGES = 2, 2


def topology_of(rank: int) -> Topology:
    """DeepSpeed's order: ranks of one stage side by side."""
    return Topology(rank, PIPELINES * STAGES, rank % PIPELINES, PIPELINES, rank // PIPELINES, STAGES)


def run_rank(rank: int, port: int, results) -> None:
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=PIPELINES * STAGES)
    # A pipeline's leader passes on the sum of its ranks' first floats.
    bus = Bus(topology_of(rank), timeout_s=30.0, condense=lambda rows: rows[:, :1].sum(axis=0), width=1)
    first = bus.post([rank, 0.5])
    second = bus.post([10 + rank, 0.5])
    gathered = bus.gather(lambda: f"from rank {rank}")
    answer = bus.broadcast(lambda: [text.upper() for text in gathered.result() or []])
    broken = bus.broadcast(lambda: 1 / 0)
    results.put(
        (rank, first.result(), second.result(), answer.result(), str(broken.exception()), bus.agree((rank, bus.place)))
    )
    bus.close()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def outcomes():
    port = free_port()
    results = PROCESSES.Queue()
    ranks = [PROCESSES.Process(target=run_rank, args=(rank, port, results)) for rank in range(PIPELINES * STAGES)]
    for rank in ranks:
        rank.start()
    outcomes = [results.get(timeout=60) for _ in ranks]
    for rank in ranks:
        rank.join(timeout=30)
        assert rank.exitcode == 0
    return sorted(outcomes, key=lambda outcome: outcome[0])


def test_every_rank_sees_the_same_round_by_pipeline(outcomes):
    for _, first, second, *_ in outcomes:
        assert np.array_equal(first, [[0 + 2], [1 + 3]])
        assert np.array_equal(second, [[10 + 12], [11 + 13]])


def test_what_is_gathered_comes_back_from_the_coordinator(outcomes):
    for *_, answer, _, _ in outcomes:
        assert answer == ["FROM RANK 0", "FROM RANK 2", "FROM RANK 1", "FROM RANK 3"]


def test_an_error_of_the_coordinator_reaches_all_ranks(outcomes):
    assert all("ZeroDivisionError" in broken for *_, broken, _ in outcomes)


def test_agreement_lists_every_rank_and_work_is_shared_out_to_leaders_first(outcomes):
    assert all(round_result == [(0, 0), (2, 2), (1, 1), (3, 3)] for *_, round_result in outcomes)


def test_every_group_is_given_up_after_the_bus_s_timeout_when_it_cannot_connect(monkeypatch):
    connect, call = [], []

    class Group:
        _Options, create_default_device = SimpleNamespace, lambda: None

        def __init__(self, store, index, size, options) -> None:
            connect.append(options._timeout)

        def _set_default_timeout(self, timeout) -> None:
            call.append(timeout)

    store = dist.HashStore()
    monkeypatch.setattr(bus_module, "job_store", lambda: store)
    monkeypatch.setattr(gloo_group, "ProcessGroupGloo", Group)
    Bus(Topology(0, 1, 0, 1, 0, 1), timeout_s=7.0, condense=lambda rows: rows[0], width=1).close()
    assert connect == [timedelta(seconds=7)] * 2
    assert call == [timedelta(seconds=7), timedelta(hours=1)]


@pytest.fixture
def buses(monkeypatch):
    """Of two ranks of one pipeline, on threads."""
    store = dist.HashStore()
    monkeypatch.setattr(bus_module, "job_store", lambda: store)
    return on_ranks(2, lambda rank: Bus(Topology(rank, 2, 0, 1, rank, 2), 5.0, lambda rows: rows.max(axis=0), 1))


def test_a_plan_under_way_does_not_hold_up_a_round(buses):
    solved = threading.Event()
    plans = [bus.broadcast(lambda: solved.wait(10.0)) for bus in buses]
    assert on_ranks(2, lambda rank: buses[rank].post([rank]).result(timeout=5).tolist()) == [[[1.0]]] * 2
    assert not any(plan.done() for plan in plans)
    solved.set()
    assert [plan.result(timeout=5) for plan in plans] == [True, True]


def test_an_error_of_one_rank_s_part_is_the_coordinator_s_and_the_next_calls_go_on(buses):
    def failing():
        raise OSError("made to fail")

    coordinators, other_s = (bus.gather(make) for bus, make in zip(buses, (lambda: 1, failing), strict=True))
    with pytest.raises(RemoteError, match="made to fail"):
        coordinators.result(timeout=5)
    assert other_s.result(timeout=5) is None
    assert on_ranks(2, lambda rank: buses[rank].agree(rank)) == [[0, 1]] * 2


def test_what_arrives_is_prepared_on_every_rank_off_the_caller_s_thread(buses):
    prepared = []

    def prepare(arrived):
        prepared.append((arrived, threading.current_thread().name))

    for plan in [bus.broadcast(lambda: "plans", prepare) for bus in buses]:
        assert plan.result(timeout=5) == "plans"
    assert prepared == [("plans", "perseus_ds-bulk")] * 2
    assert [bus.is_coordinator for bus in buses] == [True, False]


def test_closed_it_makes_the_calls_under_way_and_takes_no_more(buses):
    last = [bus.post([rank]) for rank, bus in enumerate(buses)]
    for bus in buses:
        bus.close()
    assert [future.result(timeout=5).tolist() for future in last] == [[[1.0]]] * 2
    late = [future for bus in buses for future in (bus.post([0.0]), bus.gather(lambda: 0))]
    time.sleep(0.3)
    assert not any(future.done() for future in late)
