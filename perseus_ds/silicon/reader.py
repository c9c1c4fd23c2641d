"""Processes beside the experiment; here one that reads a GPU through NVML until its input ends."""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from perseus_ds import isolated
from perseus_ds.device.nvml import NvmlDriver
from perseus_ds.silicon.reading import nvml_readings

__all__ = ["beside", "main"]


def main(arguments: Sequence[str]) -> int:
    """Read until the input ends.

    Args:
        arguments: NVML's index of the GPU.
    """
    NvmlDriver().start()
    readings = nvml_readings(int(arguments[0]))
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.0)[0]:
        for read in readings.values():
            read()
    return 0


@contextmanager
def beside(module: str, *arguments: object, count: int) -> Iterator[None]:
    """Let processes run a module; they are ready when they say so, and end with their input.

    Args:
        module: Such as this one.
        *arguments: Its command line.
        count: Number of processes.
    """
    command = [*isolated.command(module), *map(str, arguments)]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe) for _ in range(count)]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in processes:
            process.communicate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
