"""A report as a browser shows it, and the figures that it says by program."""

import html.parser
import json
import re
import shutil
import subprocess
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--virtual-time-budget=2000",
]


class Figures(html.parser.HTMLParser):
    """Collects what the page says by ``data-key``, in full, and every address it would load something from."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.values, self.loaded, self.charts = {}, [], 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if "data-value" in given:
            self.values[given["data-key"]] = json.loads(given["data-value"])
        self.loaded += [given[name] for name in ("src", "href") if name in given]
        self.charts += tag == "svg"


def summary_figures(run: Path) -> dict:
    summary = json.loads((run / "summary.json").read_text())
    keys = ["saving", "slowdown", "predicted_saving", "profiling_iterations", "switches_per_iteration"]
    keys += ["late_switches", "share_at_clock"]
    figures = {key: summary[key] for key in keys}
    for column in ("baseline", "predicted", "measured"):
        for key in ("iteration_time_s", "energy_j", "power_w"):
            figures[f"{column}.{key}"] = summary[column] and summary[column][key]
    return figures


def complaints_and_figures(run: Path, scratch: Path, *flags: str) -> tuple[list[str], dict]:
    """Open a run's report in a real browser: what its console says, and the figures of the page as it stands there."""
    assert CHROMIUM is not None
    done = subprocess.run(
        [CHROMIUM, *FLAGS, *flags, f"--user-data-dir={scratch}", "--dump-dom", f"file://{run}/report.html"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return re.findall(r".*CONSOLE.*", done.stderr), Figures(done.stdout).values
