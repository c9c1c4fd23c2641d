"""Jobs of the steady training: started, told what to do, looked at."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import launching
import psutil
import pytest
import yaml
from by_hand import PROCESSES, interpreter, rank_variables

from perseus_ds.report.rundata import read_events
from perseus_ds.simulator.gpu import VirtualGpu
from perseus_ds.simulator.state import state_paths

TRAINING = Path(__file__).with_name("steady_training.py")
HOOKS = Path(__file__).parents[1] / "patches"
BUS_TIMEOUT_S = 2.0
PATIENCE_S = 150.0  # only a job that hangs makes a test wait so long
SETTINGS = {
    "warmup_iterations": 1,
    "baseline_iterations": 3,
    "bus_timeout_s": BUS_TIMEOUT_S,
    "rejoin": {"attempts": 20},
    "profiling": {"max_iterations": 4},
    "simulator": {"stages": [6, 7], "time_scale": 0.15, "switch_latency_s": 0.002, "counter_period_s": 0.01},
    # Instructions of milliseconds on a busy host: only what is meant to fail shall.
    "straggler": {"threshold": 3.0},
    "max_slowdown": 3.0,
    "report": {"html": False, "log_every": 0},
}


def prepare(directory: Path, **settings) -> Path:
    """Make a job's directory, and return its configuration."""
    directory.mkdir(exist_ok=True)
    (directory / "orders").write_text("")
    config = directory / "perseus.yaml"
    config.write_text(yaml.safe_dump({"run_dir": str(directory / "run"), **SETTINGS, **settings}))
    return config


class Job:
    """Running processes of one training.

    Args:
        directory: Where they look for orders.
        processes: Launchers or ranks.
        output: What they print.
    """

    def __init__(self, directory: Path, processes: list[psutil.Process], output: Path) -> None:
        self.directory, self.processes, self._output = directory, processes, output
        self.run_dir = directory / "run"
        self.gpu_dir = self.run_dir / "gpus"

    def order(self, order: str) -> None:
        """Tell all ranks: ``pause RANK SECONDS``, ``break RANK`` or ``stop``."""
        fresh = self.directory / "orders.new"
        fresh.write_text(order)
        fresh.rename(self.directory / "orders")

    def log(self) -> str:
        """Return what it has printed, but for what every iteration has used."""
        return "\n".join(line for line in self._output.read_text().splitlines() if ": used " not in line)

    def alive(self) -> bool:
        return all(is_alive(one) for one in self.processes)

    def until(self, seen: Callable[[], Any], what: str, alive: bool = True) -> Any:
        """Wait until ``seen`` returns something, and return it."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            with suppress(OSError, ValueError, IndexError):
                if found := seen():
                    return found
            assert not alive or self.alive(), f"the job has ended before {what}: {self.log()}"
            time.sleep(0.02)
        pytest.fail(f"waited in vain for {what}: {self.log()}")

    def events(self, kind: str, after_s: float = 0.0) -> list[dict]:
        return [one for one in read_events(self.run_dir) if one["event"] == kind and one["time"] > after_s]

    def sees(self, kind: str, after_s: float = 0.0, **values) -> dict:
        """Wait for an event with some values, and return it."""

        def seen() -> dict | None:
            return next((one for one in self.events(kind, after_s) if values.items() <= one.items()), None)

        return self.until(seen, f"{kind} {values or ''}")

    def enforces(self, after_s: float = 0.0) -> dict:
        """Wait until the plan is in force, and return the event."""
        return self.sees("phase", after_s, phase="enforcing")

    def at(self, rank: int = 0) -> tuple[int, int]:
        """Return process and iteration of a rank."""
        process, iteration = (self.directory / f"{rank}.progress").read_text().split()
        return int(process), int(iteration)

    def goes_on(self, iterations: int = 5, rank: int = 0) -> None:
        """Wait for some more iterations."""
        goal = self.at(rank)[1] + iterations
        self.until(lambda: self.at(rank)[1] >= goal, f"iteration {goal}")

    def losses(self) -> list[str]:
        return next(filter(None, (file.read_text().split() for file in sorted(self.directory.glob("*.losses")))))

    def gpus(self) -> list[VirtualGpu]:
        return [VirtualGpu(path) for path in state_paths(self.gpu_dir)]

    def has_reset_clocks(self) -> bool:
        """Wait until they are."""
        return self.until(lambda: not any(gpu.is_locked() for gpu in self.gpus()), "default clocks", alive=False)

    def begins(self, after_s: float = 0.0) -> float:
        """Wait for Perseus to start, and return when it has; the events are those of the latest start."""
        return self.sees("start", after_s)["time"]

    def profiled(self, after_s: float) -> bool:
        """Whether it has measured a profile since then."""
        return any(one["phase"] == "profiling" for one in self.events("phase", after_s))

    def keepers(self) -> list[psutil.Process]:
        return [one for one in descendants(self.processes) if "perseus_ds.device.keeper" in command(one)]

    def stop(self) -> None:
        """Have the training end by itself."""
        self.order("stop")
        self.until(lambda: not any(map(is_alive, self.processes)), "the end", alive=False)

    def kill(self) -> None:
        """Kill all that belongs to it."""
        for one in [*descendants(self.processes), *self.processes]:
            with suppress(psutil.NoSuchProcess):
                one.kill()


def is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def descendants(processes: list[psutil.Process]) -> list[psutil.Process]:
    found = []
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            found += one.children(recursive=True)
    return found


def command(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return " ".join(process.cmdline())
    return ""


def _rank(framework: str, directory: Path, variables: dict[str, str], config: Path) -> None:
    """Train as one rank under Perseus, as ``perseus-ds run`` does."""
    with interpreter({"DS_ACCELERATOR": "cpu", **variables}, directory / "output.txt"):
        sys.path.insert(0, str(HOOKS))
        import perseus_ds

        perseus_ds.install(config)
        from steady_training import train

        train(framework, directory)


def by_hand(directory: Path, framework: str, ranks: int = 2, disable: bool = False, **settings) -> Job:
    """Start a job of some ranks, forked from a process that has imported most."""
    config = prepare(directory, **settings)
    switch = "1" if disable else "0"
    words = {"PERSEUS_DS_DISABLE": switch, "PERSEUS_DS_LOG_LEVEL": "DEBUG", "SAVES_AT_SIGTERM": "1"}
    variables = rank_variables(ranks, **words)
    (directory / "output.txt").touch()
    started = [PROCESSES.Process(target=_rank, args=(framework, directory, one, config)) for one in variables]
    for one in started:
        one.start()
    return Job(directory, [psutil.Process(one.pid) for one in started], directory / "output.txt")


def launched(directory: Path, commands: list[list[str]], **environment: str) -> Job:
    """Start a job through a launcher's command on each of its nodes; its configuration is there."""
    path = f"{HOOKS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    variables = launching.environment(PYTHONPATH=path, **environment)
    with (directory / "output.txt").open("w") as output:
        started = [
            subprocess.Popen(command, env=variables, stdout=output, stderr=output, start_new_session=True)
            for command in commands
        ]
    return Job(directory, [psutil.Process(one.pid) for one in started], directory / "output.txt")


def send(processes: list[psutil.Process], number: int) -> None:
    for one in processes:
        with suppress(ProcessLookupError):
            os.kill(one.pid, number)


def freeze(process: psutil.Process, seconds: float) -> None:
    """Stop a process for a while."""
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGCONT)
