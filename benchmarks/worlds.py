"""Real jobs on every GPU model that can be simulated: what was predicted, what was measured, and what is true.

``make worlds`` runs all. Each job is short; what it claims is set against the truth that virtual GPUs keep. The rows go
to runs/worlds/worlds.json, and into docs/worlds.md, where rows of jobs that were not run stay. All are counted there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from perseus_ds.report.claims import claims_of
from perseus_ds.report.rundata import RunData, read_run
from perseus_ds.simulator.models import MODELS

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "runs" / "worlds"
PAGE = ROOT / "docs" / "worlds.md"
MARKS = ("<!-- worlds, now: begin -->", "<!-- worlds, now: end -->")
COUNTED = ("<!-- worlds, counts: begin -->", "<!-- worlds, counts: end -->")
# What is counted, and how many of 13 jobs it was before; then a job failed.
BEFORE = {
    "measured time within 1 % of the predicted one": "0",
    "claimed saving within 0.5 points of the true one": "7",
    "claimed saving above the true one by more than half the interval": "no interval",
    "interval holds the true saving": "no interval",
    "time at most 1 % above the true baseline's": "–",
    "curves, root mean square error within 1 %": "4",
    "curves, worst point within 3 %": "–",
    "false stragglers": "2",
    "false drifts": "0",
}
DEEPSPEED = ("deepspeed_gpt/train.py", "--deepspeed_config", ROOT / "examples" / "deepspeed_gpt" / "ds_config.json")
MEGATRON = ("megatron_gpt/train.py",)
ONSET, END = 80, 94
# Of the highest clock. The throttled stage then takes about a third longer.
CEILING = 0.7
# As of the other models, on the ideal one, too: without, instructions last as long as a busy host needs.
STREAMS = {"launch_queue": 8, "host_lead_s": 0.010}
# Slow enough that four ranks, and what they solve, have time on two cores.
TIME_SCALE = 0.8


@dataclass(frozen=True)
class Case:
    """A job.

    Attributes:
        name: Of its run directory.
        framework: As rows name it.
        schedule: As rows name it.
        script: Training script and its arguments.
        stages: Of the shipped profile.
        straggler: Whether a GPU of the second pipeline is held down for a while.
    """

    name: str
    framework: str
    schedule: str
    script: tuple[Any, ...]
    stages: tuple[int, ...] = (4, 5, 6, 7)
    straggler: bool = False


CASES = (
    Case("deepspeed", "deepspeed", "1f1b PP4", DEEPSPEED),
    Case("megatron", "megatron", "1f1b PP4", MEGATRON),
    Case("interleaved", "megatron", "interleaved PP4 x VP2, overlap", (*MEGATRON, "--chunks", 2, "--overlap")),
    Case(
        "straggler",
        "megatron",
        "1f1b PP2 x DP2, straggler",
        (*MEGATRON, "--stages", 2, "--layers", 2),
        stages=(5, 6),
        straggler=True,
    ),
)


def main() -> None:
    """Run the jobs that are asked for, then write rows and table of all that there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", nargs="+", choices=MODELS, default=list(MODELS), help="models; default: all")
    parser.add_argument("--cases", nargs="+", choices=[case.name for case in CASES], help="jobs; default: all")
    arguments = parser.parse_args()
    for gpu in arguments.gpus:
        for case in CASES:
            if not arguments.cases or case.name in arguments.cases:
                run(gpu, case)
                write_results()


def run(gpu: str, case: Case, steps: int = 140) -> Path:
    """Run one job and return its run directory.

    Raises:
        subprocess.CalledProcessError: It ended with an error; its output is in output.txt.
    """
    directory = RUNS / f"{gpu}-{case.name}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    config = directory / "perseus.yaml"
    config.write_text(yaml.safe_dump(configuration(gpu, case, directory)))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", "--master-port", str(_port())]
    command += ["-m", "perseus_ds", "run", str(ROOT / "examples" / case.script[0]), *map(str, case.script[1:])]
    command += ["--perseus", str(config), "--steps", str(steps)]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    print(f"{gpu}, {case.name}", flush=True)
    with (directory / "output.txt").open("w") as output:
        subprocess.run(command, env=environment, stdout=output, stderr=output, check=True, timeout=600)
    return directory / "run"


def ceiling_mhz(gpu: str, share: float = CEILING) -> int:
    """Return the ceiling of a hot GPU, as a share of its model's highest clock."""
    return int(share * (MODELS[gpu].top_clock_mhz or 1410))


def configuration(gpu: str, case: Case, directory: Path) -> dict[str, Any]:
    """Return a job's configuration."""
    simulator: dict[str, Any] = {"gpu": gpu, "stages": [*case.stages], "time_scale": TIME_SCALE, **STREAMS}
    if case.straggler:
        slow = {"slowdown": 1.3} if gpu == "kind" else {"ceiling_mhz": ceiling_mhz(gpu)}
        simulator["throttle"] = [
            {"pipeline": 1, "stage": 0, "begin_iteration": ONSET, "end_iteration": END, **slow},
        ]
    return {
        "run_dir": str(directory / "run"),
        "baseline_iterations": 8,
        "profiling": {"reuse": False},
        "report": {"html": False},
        "simulator": simulator,
    }


def row(gpu: str, case: Case, data: RunData) -> dict[str, Any]:
    """Return what one job comes to, as worlds.json holds it."""
    summary, claims = data.summary, claims_of(data)
    assert claims is not None
    predicted, measured = summary["predicted"], summary["measured"]
    interval = data.confidence("energy_j")
    known = predicted is not None and measured is not None
    return {
        "world": gpu,
        "framework": case.framework,
        "schedule": case.schedule,
        "predicted_time_s": predicted and predicted["iteration_time_s"],
        "measured_time_s": measured and measured["iteration_time_s"],
        "true_time_s": _finite(claims.true_time_s),
        "predicted_saving": summary["predicted_saving"],
        "claimed_saving": summary["saving"],
        "saving_interval": interval and [interval.low, interval.high],
        "true_saving": _finite(claims.true_saving),
        "true_slowdown": _finite(claims.true_slowdown),
        "time_error": measured["iteration_time_s"] / predicted["iteration_time_s"] - 1.0 if known else None,
        "saving_error": _finite(claims.claimed_saving - claims.true_saving),
        "false_stragglers": sum(not _is_real(case, one) for one in summary["stragglers"]),
        "false_drifts": sum(event["event"] == "drift" for event in data.events),
        "late_switches": summary["late_switches"],
        "host_ahead": claims.host_ahead,
        "curve_time_rms": claims.curves and claims.curves.time_rms,
        "curve_time_worst": claims.curves and claims.curves.time_worst,
        "curve_energy_rms": claims.curves and claims.curves.energy_rms,
        "curve_energy_worst": claims.curves and claims.curves.energy_worst,
        "curve_energy_told": claims.curves and claims.curves.energy_told,
    }


def _is_real(case: Case, straggler: dict[str, Any]) -> bool:
    """Whether what was taken for a straggler is the one that there was."""
    here = (straggler["pipeline"], straggler["stage"]) == (1, 0)
    return case.straggler and here and ONSET <= straggler["onset_iteration"] < END


def rows() -> Iterator[dict[str, Any]]:
    """Return the rows of all jobs whose run directories are there."""
    for gpu in MODELS:
        for case in CASES:
            directory = RUNS / f"{gpu}-{case.name}" / "run"
            if (directory / "summary.json").exists():
                yield row(gpu, case, read_run(directory))


def write_results() -> None:
    """Write worlds.json, and the table and its counts into the page."""
    found = list(rows())
    (RUNS / "worlds.json").write_text(json.dumps(found, indent=1))
    page = PAGE.read_text(encoding="utf-8")
    old = page.split(MARKS[0])[1].split(MARKS[1])[0]
    new = merged(old.strip(), table(found))
    for (begin, end), text in ((MARKS, new), (COUNTED, counts(new))):
        before, rest = page.split(begin)
        page = f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"
    PAGE.write_text(page, encoding="utf-8")
    print(new, flush=True)


def counts(rows_of_jobs: str) -> str:
    """Return in how many rows of the table the figures are as they should be, as a Markdown table."""
    now = dict.fromkeys(BEFORE, 0)
    lines = rows_of_jobs.splitlines()[2:]
    for line in lines:
        cells = [cell.strip() for cell in line.split("|")[3:-1]]
        time_error, true, saving_error, slower = (_number(cells[at]) for at in (3, 7, 8, 9))
        time_rms, time_worst, energy_rms, energy_worst = (_number(cells[at]) for at in (10, 11, 12, 13))
        *_, low, high = (math.nan, *map(_number, cells[6].split(" to ")))
        good = abs(time_error) <= 1.0, abs(saving_error) <= 0.5, saving_error > (high - low) / 2, low <= true <= high
        good += slower <= 1.0, max(time_rms, energy_rms) <= 1.0, max(time_worst, energy_worst) <= 3.0
        good += int(cells[15]), int(cells[16])
        now = {what: now[what] + one for what, one in zip(BEFORE, good, strict=True)}
    head = [f"| | before (13 jobs, then it failed) | now ({len(lines)} jobs) |", "| --- | ---: | ---: |"]
    return "\n".join([*head, *(f"| {what} | {before} | {now[what]} |" for what, before in BEFORE.items())])


def merged(old: str, new: str) -> str:
    """Return the new table with the old one's rows of other jobs, in the order of the jobs."""
    heads, lines = new.splitlines()[:2], {}
    for line in [*old.splitlines()[2:], *new.splitlines()[2:]]:
        gpu, job = (cell.strip() for cell in line.split("|")[1:3])
        lines[gpu, job] = line
    order = [(gpu, f"{case.framework}, {case.schedule}") for gpu in MODELS for case in CASES]
    return "\n".join([*heads, *(lines[job] for job in order if job in lines)])


def table(found: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    heads = ("GPU", "job", "time: predicted", "measured", "true", "error", "saving: predicted", "claimed")
    heads += (
        "95 % interval",
        "true",
        "error",
        "slower, true",
        "curves: time",
        "worst",
        "energy",
        "worst",
        "energy, told",
        "false stragglers",
        "false drifts",
        "late switches",
        "host ahead",
    )
    lines = ["| " + " | ".join(heads) + " |", "| --- | --- |" + " ---: |" * (len(heads) - 2)]
    for one in found:
        cells = [one["world"], f"{one['framework']}, {one['schedule']}"]
        cells += [_seconds(one[name]) for name in ("predicted_time_s", "measured_time_s", "true_time_s")]
        cells += [_percent(one[name], "+") for name in ("time_error", "predicted_saving", "claimed_saving")]
        cells.append(
            "–" if one["saving_interval"] is None else " to ".join(_percent(end, "+") for end in one["saving_interval"])
        )
        cells += [_percent(one[name], "+") for name in ("true_saving", "saving_error", "true_slowdown")]
        of_curves = ("time_rms", "time_worst", "energy_rms", "energy_worst", "energy_told")
        cells += [_percent(one[f"curve_{name}"], "") for name in of_curves]
        cells += [f"{one[name]:.0f}" for name in ("false_stragglers", "false_drifts", "late_switches", "host_ahead")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f} s"


def _number(percent: str) -> float:
    return math.nan if percent == "–" else float(percent.removesuffix(" %"))


def _percent(value: float | None, sign: str) -> str:
    return "–" if value is None else f"{100 * value:{sign}.1f} %"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    main()
