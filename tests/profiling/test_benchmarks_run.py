"""The profiling benchmarks run where there is no GPU, and say what they could not measure."""

import os
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(BENCHMARKS / name), *arguments]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=120).stdout


def test_without_a_gpu_the_gpu_benchmark_is_skipped_and_says_so() -> None:
    assert "skipped: no NVIDIA GPU at hand" in run("gpu_overhead.py")


def test_hooks_cost_a_few_microseconds() -> None:
    table = run("hook_overhead.py", "--repeat", "20")

    rows = [line for line in table.splitlines() if line.count(" us") == 2]
    medians_us = [float(row.split("│")[2].split()[0]) for row in rows]
    assert len(medians_us) == 4
    assert max(medians_us) < 20
