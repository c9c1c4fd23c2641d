"""The profiling benchmarks run where there is no GPU."""

import os
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(BENCHMARKS / name), *arguments]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=120).stdout


def test_hooks_cost_a_few_microseconds() -> None:
    table = run("hook_overhead.py", "--repeat", "20")

    rows = [line for line in table.splitlines() if line.count(" us") == 2]
    medians_us = [float(row.split("│")[2].split()[0]) for row in rows]
    assert len(medians_us) == 4
    # Busy cores multiply them; what they are on a quiet host is in benchmarks/README.md.
    assert max(medians_us) < 500
