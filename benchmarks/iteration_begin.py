"""What the begin of an iteration costs on the trainer's thread, by phase: collect, hear, decide, report, ask.

One rank with a real session and a real clock keeper; its GPU is simulated. The longest one counts, too: whatever takes
a while belongs on another thread.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections import defaultdict
from statistics import median

import torch.distributed as dist
from rich.console import Console
from rich.table import Table

from perseus_ds.config import Config
from perseus_ds.pipeline.events import Operation, Topology
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.runtime.attach import attach
from perseus_ds.runtime.session import RankSession

_MICROBATCHES = 32
_ALONE = Topology(0, 1, 0, 1, 0, 1, framework="a loop by hand")
_SETTLES = 3  # iterations of each phase that are not counted


def begin_costs_ms(session: RankSession, planned: int) -> dict[str, list[float]]:
    """Train until so many iterations had a plan; return the milliseconds of each begin, by phase."""
    costs_ms: dict[str, list[float]] = defaultdict(list)
    program = [Operation(kind, at) for kind in (Kind.FORWARD, Kind.BACKWARD) for at in range(_MICROBATCHES)]
    while len(costs_ms["enforcing"]) < planned:
        before_s = time.thread_time()
        session.iteration_begin(_MICROBATCHES, training=True)
        costs_ms[session._controller.phase.value].append(1e3 * (time.thread_time() - before_s))
        for operation in program:
            session.operation_begin(operation)
            session.operation_end(operation)
        session.iteration_end()
    return costs_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--planned", type=int, default=300, help="iterations with a plan; a refresh is among them")
    planned = parser.parse_args().planned
    logging.getLogger("perseus_ds").setLevel(logging.ERROR)
    table = Table("phase", "iterations", "median", "longest", title="Begin of an iteration, CPU of the trainer")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with tempfile.TemporaryDirectory() as directory:
        config = Config(
            run_dir=directory,
            objective={"slowdown": 1.1},
            simulator={"profile": "gpt3-175b-a100-sxm", "stages": [0], "time_scale": 0.05},
            report={"html": False},
        )
        session = attach(config, _ALONE)
        try:
            costs_ms = begin_costs_ms(session, planned)
        finally:
            session.close()
    dist.destroy_process_group()
    for phase, all_ms in costs_ms.items():
        if settled := all_ms[_SETTLES:]:
            table.add_row(phase, str(len(settled)), f"{median(settled):.2f} ms", f"{max(settled):.1f} ms")
    Console().print(table)


if __name__ == "__main__":
    main()
