"""Starts real training through real launchers, on simulated GPUs."""

import contextlib
import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "deepspeed_gpt"
TRAIN = EXAMPLE / "train.py"
DS_CONFIG = EXAMPLE / "ds_config.json"
SCRIPTS = Path(sys.executable).parent

QUICK = {
    "warmup_iterations": 1,
    "baseline_iterations": 3,
    "profiling": {"max_iterations": 6},
    "simulator": {"stages": [6, 7], "time_scale": 0.3, "switch_latency_s": 0.002, "counter_period_s": 0.02},
}
"""A configuration that enforces a plan after some 14 iterations of about a third of a second."""


def free_port() -> int:
    """Below the range that the system hands out itself: another job's connections would take it before its use."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def write_config(directory: Path, **values) -> Path:
    file = directory / "perseus.yaml"
    file.write_text(yaml.safe_dump({"run_dir": str(directory / "run"), **QUICK, **values}))
    return file


def environment(**extra: str) -> dict[str, str]:
    path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "PATH": path, **extra}


def deepspeed_command(ranks: int, *arguments) -> list[str]:
    return ["deepspeed", "--num_gpus", str(ranks), "--master_port", str(free_port()), *map(str, arguments)]


def torchrun_command(ranks: int, *arguments) -> list[str]:
    return ["torchrun", "--nproc-per-node", str(ranks), "--master-port", str(free_port()), *map(str, arguments)]


def run(command: list[str], timeout_s: float = 240.0, **extra_environment: str) -> subprocess.CompletedProcess[str]:
    """Run to the end; the output holds both streams."""
    return subprocess.run(
        command,
        env=environment(**extra_environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
