"""Starts a job, tells it a power signal through its control file, and shows how it has followed.

The signal is a CSV file: for so many iterations, this power of the whole job, in watts or as a share of the baseline's.
``100%`` is no order: the job runs at its configured objective. Everything after ``--`` is the job's command.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from perseus_ds.coordination.control import control_line
from perseus_ds.frontier.power_signal import SignalStep, read_signal
from perseus_ds.report.power_rows import power_chart, slowdown_chart

COLUMNS = (
    "target_w", "measured_w", "answered_iterations", "slowdown", "predicted_slowdown", "uniform_slowdown", "at_floor",
)  # fmt: skip


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=Path, help="run_dir of the job's configuration")
    parser.add_argument("signal", type=Path, help="CSV file with the columns iterations and power")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and the job's command")
    return parser.parse_args()


def read_json(file: Path) -> Any:
    """Return the content of a file that the job replaces now and then; None before the first."""
    try:
        return json.loads(file.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def planned_iterations(run_dir: Path) -> int:
    """Return how many iterations have had plans."""
    rows = read_json(run_dir / "iterations.json") or []
    return sum(row["phase"] == "enforcing" for row in rows)


def give_orders(run_dir: Path, signal: list[SignalStep], job: subprocess.Popen) -> None:
    """Write one order after the other, each once the job has come so far."""
    begins = 0
    for row in signal:
        while planned_iterations(run_dir) <= begins:
            if job.poll() is not None:
                return
            time.sleep(0.2)
        begins += row.iterations
        watts = row.power_w
        if row.share is not None:
            baseline = read_json(run_dir / "summary.json")
            watts = row.share * baseline["baseline"]["power_w"] * baseline["pipelines"]
        order = "" if row.share == 1.0 else control_line(f"objective power={watts:.0f}W", None, "the signal") + "\n"
        (run_dir / "control.new").write_text(order)
        (run_dir / "control.new").replace(run_dir / "control")


def show(run_dir: Path) -> int:
    """Print the rows of ``summary.json``, and draw them; return an exit status."""
    summary, series = read_json(run_dir / "summary.json"), read_json(run_dir / "iterations.json")
    if not summary or not (rows := summary.get("power")):
        print("the job has not followed any power", file=sys.stderr)
        return 1
    simulated = " (simulated GPUs)" if summary["simulated"] else ""
    print(f"Power of the whole job{simulated}; a uniform clock cap on all GPUs is predicted from the same curves")
    print("".join(f"{name:>21}" for name in COLUMNS))
    for row in rows:
        cells = [f"{value:.3f}" if isinstance(value, float) else str(value) for value in map(row.get, COLUMNS)]
        print("".join(f"{cell:>21}" for cell in cells))
    pictures = {"power": power_chart(rows, series, summary["pipelines"]), "slowdown": slowdown_chart(rows, series)}
    for name, chart in pictures.items():
        (run_dir / f"{name}.svg").write_text(drawn(chart))
    print(f"pictures: {run_dir}/power.svg and slowdown.svg")
    return 0


def drawn(chart: str) -> str:
    """Return a chart as a file of its own, with the colours that a report's page would give it."""
    style = (
        "text{font:11px sans-serif}line{stroke:#ddd}polyline{fill:none;stroke-width:1.5}"
        ".measured{stroke:#1b6ca8}.chosen{stroke:#d1495b}.baseline{stroke:#6b7280}"
    )
    return chart.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(
        "><g", f"><style>{style}</style><g", 1
    )


def main() -> int:
    arguments = parse_arguments()
    signal = read_signal(arguments.signal)
    job = subprocess.Popen(arguments.command[arguments.command[0] == "--" :])
    try:
        give_orders(arguments.run_dir, signal, job)
        status = job.wait()
    finally:
        if job.poll() is None:
            job.terminate()
            job.wait()
    return status or show(arguments.run_dir)


if __name__ == "__main__":
    sys.exit(main())
