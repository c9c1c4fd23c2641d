"""Starts the small trainer as four real processes."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from by_hand import PROCESSES, interpreter, rank_variables
from small_trainer import ITERATIONS, train

from perseus_ds.config import SimulatorConfig
from perseus_ds.profiling.table import write_profile
from perseus_ds.report.rundata import read_events
from perseus_ds.runtime.simulation import simulated_profile
from perseus_ds.simulator.gpu import VirtualGpu
from perseus_ds.simulator.state import state_paths

RANKS, BUS_TIMEOUT_S = 4, 4.0
PATIENCE_S = 240.0  # only a job that hangs makes a test wait so long
SIMULATOR = {"time_scale": 0.1, "switch_latency_s": 0.001, "counter_period_s": 0.01}


def _rank(environment: dict[str, str], directory: Path, iterations: int, fault="", victim=-1) -> None:
    """Train as one rank, with a log of its own."""
    with interpreter(environment, directory / f"{environment['RANK']}.log"):
        train(directory, iterations, fault, victim)


class Job:
    """Four real processes; without a number of iterations they train until told to stop."""

    def __init__(
        self,
        directory: Path,
        iterations: int = 0,
        fault: tuple = (),
        disable: bool = False,
        settings: dict | None = None,
    ) -> None:
        directory.mkdir(exist_ok=True)
        (directory / "orders").write_text("")
        for rank in range(RANKS):
            (directory / f"{rank}.log").write_text("")
        self.directory = directory
        config = {
            "run_dir": str(directory / "run"),
            "warmup_iterations": 1,
            "baseline_iterations": 4,
            "bus_timeout_s": BUS_TIMEOUT_S,
            "profiling": {"profile": str(directory / "given.csv")},
            "simulator": SIMULATOR,
            # Instructions of milliseconds on a busy host: only what is meant to fail shall.
            "straggler": {"threshold": 3.0},
            "max_slowdown": 3.0,
            **(settings or {}),
        }
        write_profile(simulated_profile(SimulatorConfig(**SIMULATOR), stages=2), directory / "given.csv")
        (directory / "perseus.yaml").write_text(yaml.safe_dump(config))
        self.ranks = [
            PROCESSES.Process(target=_rank, args=(variables, directory, iterations, *fault))
            for variables in rank_variables(RANKS, PERSEUS_DS_DISABLE="1" if disable else "0")
        ]
        for rank in self.ranks:
            rank.start()

    def wait(self, timeout_s: float = PATIENCE_S) -> list[int]:
        """Return the exit codes of all ranks."""
        deadline_s = time.monotonic() + timeout_s
        for rank in self.ranks:
            rank.join(max(deadline_s - time.monotonic(), 0.1))
        assert not any(rank.is_alive() for rank in self.ranks), self.log()
        return [rank.exitcode for rank in self.ranks]

    def reaches(self, rank: int, iteration: int) -> None:
        """Wait until a rank has come to an iteration."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            with suppress(OSError, ValueError, IndexError):
                if int((self.directory / f"{rank}.progress").read_text().split()[1]) >= iteration:
                    return
            assert all(process.is_alive() for process in self.ranks), self.log()
            time.sleep(0.02)
        pytest.fail(f"rank {rank} does not come to iteration {iteration}: {self.log()}")

    def is_off(self, *ranks: int) -> None:
        """Wait until Perseus is off on these ranks: they look for it once a second, and not before their last round."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not all((self.directory / f"{rank}.progress").read_text().endswith("False") for rank in ranks):
            assert time.monotonic() < deadline_s, self.log()
            time.sleep(0.05)

    def sees(self, kind: str, seen=lambda event: True) -> dict:
        """Wait for an event of a kind that is as wanted, and return it."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            with suppress(OSError, ValueError, StopIteration):
                return next(filter(seen, self.events(kind)))
            assert all(process.is_alive() for process in self.ranks), self.log()
            time.sleep(0.05)
        pytest.fail(f"no {kind} as wanted: {self.log()}")

    def leaves(self, file: Path) -> None:
        """Wait until a file is there."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not file.exists():
            assert time.monotonic() < deadline_s, self.log()
            time.sleep(0.05)

    def says(self, text: str) -> None:
        """Wait until some rank's log has a text, and the weights to be compared are there."""
        deadline_s = time.monotonic() + PATIENCE_S
        while text not in self.log():
            assert time.monotonic() < deadline_s, self.log()
            assert all(process.is_alive() for process in self.ranks), self.log()
            time.sleep(0.05)
        self.reaches(0, ITERATIONS)

    def order(self, order: str) -> None:
        """Tell a job without a number of iterations: ``larger``, ``straggler 0 1.4``, ``save`` or ``stop``."""
        fresh = self.directory / "orders.new"
        fresh.write_text(order)
        fresh.rename(self.directory / "orders")

    def stop(self) -> list[int]:
        """Return the exit codes of all ranks, told to stop."""
        self.order("stop")
        return self.wait()

    def freeze(self, rank: int, seconds: float) -> None:
        """Stop a rank's process for a while, once it is training."""
        self.reaches(rank, 30)
        os.kill(self.ranks[rank].pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.ranks[rank].pid, signal.SIGCONT)

    def results(self) -> list[dict]:
        return [json.loads((self.directory / f"{rank}.json").read_text()) for rank in range(RANKS)]

    def events(self, kind: str) -> list[dict]:
        return [event for event in read_events(self.directory / "run") if event["event"] == kind]

    def log(self) -> str:
        return "\n".join((self.directory / f"{rank}.log").read_text() for rank in range(RANKS))

    def clocks_are_reset(self) -> bool:
        """Whether they are, after a second for the keepers."""
        gpus = [VirtualGpu(path) for path in state_paths(self.directory / "run" / "gpus")]
        deadline_s = time.monotonic() + 3.0
        while any(gpu.is_locked() for gpu in gpus) and time.monotonic() < deadline_s:
            time.sleep(0.02)
        return len(gpus) == RANKS and not any(gpu.is_locked() for gpu in gpus)

    def kill(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.join()
