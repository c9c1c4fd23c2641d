"""A job trains for long at fast time on virtual GPUs, disturbed at random; nothing may grow, drift or differ.

    python benchmarks/soak.py                                    # 20,000 iterations or 30 minutes (make soak)
    python benchmarks/soak.py --calm --gpu h100 --iterations 2000  # four stragglers only: are there others, and drifts?

The same training then runs without Perseus: its losses must be the same. What was found is printed, and written to
runs/soak/NAME/findings.json. The exit code is 1 if anything is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from soak_findings import Finding, find
from soak_plan import BUS_TIMEOUT_S, SLOW, make_plan, make_rare_plan, write_plan
from worlds import ceiling_mhz

from perseus_ds.simulator.models import MODELS
from perseus_ds.simulator.state import MAX_ITERATIONS
from perseus_ds.simulator.truth import read_truth

ROOT = Path(__file__).parents[1]
TRAINER = Path(__file__).with_name("soak_trainer.py")
SAMPLES = 100  # of what the processes use
_LOOK_S = 5.0


def arguments_of(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", choices=("deepspeed", "megatron"), default="deepspeed")
    parser.add_argument("--gpu", choices=[*MODELS], default="kind", help="model of the virtual GPUs")
    parser.add_argument("--iterations", type=int, default=20_000, help="at most so many")
    parser.add_argument("--minutes", type=float, default=24.0, help="at most so long with Perseus")
    parser.add_argument("--time-scale", type=float, help="of the profile; default: 0.06, with --calm 0.4")
    parser.add_argument("--ranks", type=int, default=2, help="pipeline stages")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calm", action="store_true", help="four stragglers only, far apart")
    parser.add_argument("--directory", type=Path, help="default: runs/soak/GPU-FRAMEWORK[-calm]")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    """Soak, then train without Perseus, and compare.

    Returns:
        Exit code: 0 if all is as it should be.
    """
    arguments = arguments_of(given)
    arguments.time_scale = arguments.time_scale or (0.4 if arguments.calm else 0.06)
    name = f"{arguments.gpu}-{arguments.framework}{'-calm' * arguments.calm}"
    directory = (arguments.directory or ROOT / "runs" / "soak" / name).absolute()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    if arguments.calm:
        plan = make_rare_plan(arguments.iterations, arguments.ranks)
    else:
        plan = make_plan(arguments.iterations, arguments.ranks, arguments.seed)
    write_plan(directory / "plan.json", plan)
    (directory / "perseus.yaml").write_text(yaml.safe_dump(configuration(arguments, directory)))
    begin_s = time.monotonic()
    energies_j = soak(arguments, directory)
    done = int((directory / "done").read_text())
    train(arguments, directory, done, watched=False).wait()
    findings = find(directory, plan, energies_j, done)
    seconds = time.monotonic() - begin_s
    (directory / "findings.json").write_text(
        json.dumps({"seconds": seconds, "findings": [asdict(finding) for finding in findings]}, indent=1)
    )
    show(
        f"{name}: {done:,} iterations, {len(plan)} disturbances, {seconds / 60:.1f} minutes (simulated GPUs)", findings
    )
    return int(any(finding.good is False for finding in findings))


def configuration(arguments: argparse.Namespace, directory: Path) -> dict:
    """Return Perseus's configuration."""
    plan = json.loads((directory / "plan.json").read_text())
    throttle = [_throttle(one, arguments.gpu) for one in plan if one["kind"] in SLOW]
    # An ideal GPU is fast in all; a model keeps its own latencies, and its counter.
    fast = {"switch_latency_s": 0.001, "counter_period_s": 0.01} if arguments.gpu == "kind" else {}
    # At fast time, milliseconds of a busy host are per cents of an instruction, and failures of days come in an hour.
    hasty = {"straggler": {"threshold": 1.15, "recovery_threshold": 1.1}, "max_slowdown": 1.15}
    return {
        "run_dir": str(directory / "run"),
        "bus_timeout_s": BUS_TIMEOUT_S,
        "profiling": {"max_iterations": 20},
        "rejoin": {"attempts": 100_000},
        "simulator": {"gpu": arguments.gpu, "time_scale": arguments.time_scale, "throttle": throttle, **fast},
        **({} if arguments.calm else hasty),
    }


def _throttle(one: dict[str, Any], gpu: str) -> dict[str, float]:
    """Return a straggler's entry in the configuration."""
    value = one["value"]
    slow = {"slowdown": value} if one["kind"] == "straggler" else {"ceiling_mhz": ceiling_mhz(gpu, value)}
    return {"stage": one["rank"], "begin_iteration": one["begin"], "end_iteration": one["end"], **slow}


def train(arguments: argparse.Namespace, directory: Path, iterations: int, watched: bool) -> subprocess.Popen[bytes]:
    """Start the training, with Perseus or without."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(arguments.ranks)]
    command += ["--master-port", str(_port()), "-m", "perseus_ds", "run", str(TRAINER)]
    command += ["--perseus", str(directory / "perseus.yaml"), "--framework", arguments.framework]
    command += ["--directory", str(directory), "--iterations", str(iterations)]
    command += ["--minutes", str(arguments.minutes if watched else 1e6)]
    command += ["--sample-every", str(max(1, arguments.iterations // SAMPLES))]
    disabled = {} if watched else {"PERSEUS_DS_DISABLE": "1"}
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", **disabled}
    with (directory / f"output-{'with' if watched else 'without'}.txt").open("wb") as output:
        return subprocess.Popen(command, env=environment, stdout=output, stderr=output)


def soak(arguments: argparse.Namespace, directory: Path) -> dict[int, float]:
    """Train with Perseus, and return each iteration's true energy of all GPUs.

    Raises:
        SystemExit: The training has failed.
    """
    energies_j: dict[int, float] = {}
    job, looked = train(arguments, directory, arguments.iterations, watched=True), 0
    while True:
        try:
            code = job.wait(_LOOK_S)
        except subprocess.TimeoutExpired:
            code = None
        reached = newest_iteration(directory)
        if code is not None or reached >= looked + MAX_ITERATIONS // 4:
            energies_j.update(true_energies_j(directory, range(looked, reached)))
            looked = reached
            print(f"iteration {reached:,}", flush=True)
        if code is not None:
            break
    if code:
        sys.exit(f"the training failed: see {directory / 'output-with.txt'}")
    return energies_j


def newest_iteration(directory: Path) -> int:
    """Return the newest iteration that rank 0 has sampled."""
    file = directory / "used-with-0.csv"
    if not file.exists():
        return 0
    rows = file.read_text().splitlines()[1:]
    return int(rows[-1].split(",")[0]) if rows else 0


def true_energies_j(directory: Path, iterations: range) -> dict[int, float]:
    """Return the true energy of iterations, for those that the virtual GPUs still know."""
    truths = read_truth(directory / "run" / "gpus", range(iterations.start, iterations.stop + 1))
    found = {}
    for number in iterations:
        if all(number in truth.begins and number + 1 in truth.begins for truth in truths):
            found[number] = sum(truth.begins[number + 1].energy_j - truth.begins[number].energy_j for truth in truths)
    return found


def show(title: str, findings: list[Finding]) -> None:
    """Print the findings as a table."""
    table = Table(title=title, title_justify="left")
    for heading in ("", "what", "found", "should be"):
        table.add_column(heading)
    for finding in findings:
        mark = {True: "✓", False: "✗", None: ""}[finding.good]
        table.add_row(mark, finding.what, finding.found, finding.wanted)
    Console(width=140).print(table)


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())
