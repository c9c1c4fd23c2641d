"""Runs ranks without a launcher, as a cluster's scheduler does, for tests of what comes after the launch.

They are forked from one process that has imported what takes every rank seconds: half a quick job's time.
"""

import atexit
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launching import free_port

PROCESSES = multiprocessing.get_context("forkserver")
# Libraries only. An optimizer imports torch's compiler, Megatron-Core its back end; nothing is compiled here.
PROCESSES.set_forkserver_preload(
    ["torch.distributed", "torch._dynamo", "torch._inductor.compile_fx", "numba", "pydantic.main", "rich.progress"]
)


def by_hand(count: int, *arguments, timeout_s: float = 240.0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``python ARGUMENT...`` on some ranks to the end; the output holds both streams of all."""
    words = [str(argument) for argument in arguments]
    with tempfile.NamedTemporaryFile("r") as output:
        ranks = [
            PROCESSES.Process(target=_run, args=(words, {"DS_ACCELERATOR": "cpu", **variables}, output.name))
            for variables in rank_variables(count, **environment)
        ]
        for rank in ranks:
            rank.start()
        deadline_s = time.monotonic() + timeout_s
        for rank in ranks:
            rank.join(max(deadline_s - time.monotonic(), 0.1))
        late = [rank for rank in ranks if rank.is_alive()]
        for rank in late:
            rank.kill()
        if late:
            raise subprocess.TimeoutExpired(words, timeout_s, output.read())
        return subprocess.CompletedProcess(words, max(abs(rank.exitcode or 0) for rank in ranks), output.read())


def rank_variables(count: int, **environment: str) -> list[dict[str, str]]:
    """Return what a launcher would put into every rank's environment, and what is wanted besides."""
    job = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **environment}
    return [{**job, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


@contextmanager
def interpreter(environment: dict[str, str], output: str | Path) -> Iterator[None]:
    """Make this process like a new one: its variables, both its streams, and what runs at its end."""
    os.environ.update(environment)
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    with open(output, "a") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    try:
        yield
    finally:
        atexit._run_exitfuncs()


def _run(arguments: list[str], environment: dict[str, str], output: str) -> None:
    with interpreter(environment, output):
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            sys.path.insert(0, str(Path(arguments[0]).parent))
            runpy.run_path(arguments[0], run_name="__main__")
