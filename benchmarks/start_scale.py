"""How a large job's bus starts: requests to the key-value store, seconds, threads and memory per rank.

Small jobs are started for real: every rank makes its end of the bus, over gloo and a TCP store, as threads of a few
processes. Their requests are counted, and so is what one store serves per second. From both follows what 10,240 ranks
need; that much is reckoned, not run.

    python benchmarks/start_scale.py
    python benchmarks/start_scale.py --lazy     # members of a group connect once they talk (not used: timeouts fail)
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import torch.distributed as dist
from rich.console import Console
from rich.table import Table

from perseus_ds.coordination.bus import Bus
from perseus_ds.coordination.group_store import GroupStore
from perseus_ds.coordination.rounds import RankStatus, condense, condensed_width
from perseus_ds.pipeline.events import Topology

TIMEOUT_S = 120.0
SHAPES = ((1, 16), (2, 16), (4, 16), (8, 16), (2, 32), (1, 64))  # pipelines, ranks of each
LARGE = (160, 64)
PROCESSES = 4


class CountingStore(dist.Store):
    """A store that counts its requests."""

    def __init__(self) -> None:
        super().__init__()
        self._inner = dist.HashStore()
        self._lock = threading.Lock()
        self.requests = 0

    def _counted(self, call: Callable, *arguments):
        with self._lock:
            self.requests += 1
        return call(*arguments)

    def set(self, key, value):
        return self._counted(self._inner.set, key, value)

    def get(self, key):
        return self._counted(self._inner.get, key)

    def add(self, key, value):
        return self._counted(self._inner.add, key, value)

    def check(self, keys):
        return self._counted(self._inner.check, keys)

    def wait(self, keys, timeout=timedelta(seconds=TIMEOUT_S)):
        return self._counted(self._inner.wait, keys, timeout)

    def has_extended_api(self):
        return True

    def multi_get(self, keys):
        return self._counted(self._inner.multi_get, keys)


def topology(rank: int, pipelines: int, members: int) -> Topology:
    """Return a rank's position: half the ranks of a pipeline are stages, in tensor-parallel pairs."""
    place = rank % members
    return Topology(rank, pipelines * members, rank // members, pipelines, place // 2, members // 2, place % 2, 2)


def start(rank: int, pipelines: int, members: int, store: dist.Store) -> Bus:
    """Start a rank's end of the bus, and use it once, as ``attach`` and the first iteration do."""
    stages = members // 2
    bus = Bus(
        topology(rank, pipelines, members), TIMEOUT_S, partial(condense, stages=stages), condensed_width(stages), store
    )
    bus.broadcast(lambda: "a configuration").result(TIMEOUT_S)
    bus.agree("hardware")
    bus.post(RankStatus(0).row()).result(TIMEOUT_S)
    return bus


def on_threads(ranks: range, call: Callable[[int], Bus]) -> list[Bus]:
    """Call for every rank at the same time."""
    made: dict[int, Bus] = {}
    threads = [threading.Thread(target=lambda one=rank: made.update({one: call(one)})) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == len(ranks), "a rank has failed"
    return [made[rank] for rank in ranks]


def memory_kb() -> int:
    """Return this process's own memory."""
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("RssAnon:")).split()[1])


def requests(pipelines: int, members: int) -> int:
    """Return the store's requests of a whole start, counted."""
    store = CountingStore()
    made = on_threads(range(pipelines * members), lambda rank: start(rank, pipelines, members, store))
    for bus in made:
        bus.give_up(0.0)
    for bus in made:
        bus.release()
    return store.requests


def part(ranks: range, pipelines: int, members: int, port: int, results) -> None:
    """Start some ranks of a job in this process, and report what it took."""
    stores = {rank: dist.TCPStore("127.0.0.1", port, is_master=False) for rank in ranks}
    stores[ranks[0]].add("ready", 1)
    while stores[ranks[0]].add("ready", 0) < PROCESSES:
        time.sleep(0.005)
    before_kb, threads, sockets = memory_kb(), len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    begin_s = time.monotonic()
    kept = on_threads(ranks, lambda rank: start(rank, pipelines, members, stores[rank]))
    taken_s = time.monotonic() - begin_s
    each = len(kept)
    results.put(
        (
            taken_s,
            (memory_kb() - before_kb) / each,
            (len(os.listdir("/proc/self/task")) - threads) / each,
            (len(os.listdir("/proc/self/fd")) - sockets) / each,
        )
    )
    stores[ranks[0]].add("done", 1)
    while stores[ranks[0]].add("done", 0) < PROCESSES:
        time.sleep(0.05)
    results.close()
    results.join_thread()
    os._exit(0)


def real(pipelines: int, members: int) -> tuple[float, float, float, float]:
    """Start a job as threads of several processes; return seconds, and kB, threads and descriptors per rank."""
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("fork")
    results, ranks = context.Queue(), pipelines * members
    share = ranks // PROCESSES
    processes = [
        context.Process(target=part, args=(range(n * share, (n + 1) * share), pipelines, members, server.port, results))
        for n in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=TIMEOUT_S) for _ in processes]
    for process in processes:
        process.join()
    return tuple(max(column) for column in zip(*found, strict=True))


def together_per_s(ask: Callable[[dist.TCPStore], object], prepare: Callable[[dist.TCPStore], object]) -> float:
    """Return how often one store serves what several processes ask of it at once, per second."""
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    prepare(server)
    context = multiprocessing.get_context("fork")
    results, number = context.Queue(), 1000

    def asks() -> None:
        store = dist.TCPStore("127.0.0.1", server.port, is_master=False)
        begin_s = time.monotonic()
        for _ in range(number):
            ask(store)
        results.put((begin_s, time.monotonic()))
        results.close()
        results.join_thread()
        os._exit(0)

    processes = [context.Process(target=asks) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    spans = [results.get(timeout=TIMEOUT_S) for _ in processes]
    for process in processes:
        process.join()
    return PROCESSES * number / (max(end for _, end in spans) - min(begin for begin, _ in spans))


def gets_per_s() -> float:
    """Return the small requests that one store serves per second."""
    # Each get is two requests to the server: wait, then get.
    return 2 * together_per_s(lambda store: store.get("key"), lambda store: store.set("key", "x" * 100))


def connections_per_s(members: int) -> float:
    """Return the members of such a group that one store lets connect per second, with addresses as long as gloo's."""
    # One address, and eight bytes for every other member; as hexadecimal digits in JSON.
    entry = json.dumps({"0/0": "ab" * (154 + 8 * members)})

    def prepare(store: dist.Store) -> None:
        for one in range(members):
            store.set(f"member/{one}", entry)

    return together_per_s(lambda store: GroupStore(store, members, 0, TIMEOUT_S).get("0/0"), prepare)


def main() -> None:
    if sys.argv[1:] == ["--lazy"]:
        os.environ["TORCH_GLOO_LAZY_INIT"] = "1"
    console = Console(width=130)
    shown = Table(title="Start of the bus", title_justify="left")
    for heading in (
        "ranks",
        "DP",
        "requests per rank",
        "real, s",
        "kB per rank",
        "threads per rank",
        "descriptors per rank",
    ):
        shown.add_column(heading, justify="right")
    # Processes are forked before this one has threads.
    started = {shape: real(*shape) for shape in SHAPES}
    (pipelines, members), rate = LARGE, gets_per_s()
    ranks = pipelines * members
    connected_s = 2 * ranks / connections_per_s(members) + 2 * pipelines / connections_per_s(pipelines)
    most = 0.0
    for shape, (taken_s, memory, threads, descriptors) in started.items():
        here = shape[0] * shape[1]
        per_rank = requests(*shape) / here
        most = max(most, per_rank)
        shown.add_row(
            str(here), str(shape[0]), f"{per_rank:.1f}", f"{taken_s:.2f}", f"{memory:.0f}", f"{threads:.1f}",
            f"{descriptors:.1f}",
        )  # fmt: skip
    console.print(shown)
    console.print(
        f"One store serves {rate:,.0f} small requests per second to {PROCESSES} processes here. {ranks:,} ranks "
        f"(DP {pipelines}) make {most:.0f} requests each: {ranks * most / rate:.1f} s (reckoned). "
        f"Those for addresses are larger, and take {connected_s:.1f} s alone (reckoned)."
    )
    sys.stdout.flush()
    os._exit(0)  # gloo's threads outlive their groups


if __name__ == "__main__":
    main()
