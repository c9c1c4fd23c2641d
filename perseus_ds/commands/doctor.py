"""``perseus-ds doctor``: can Perseus work here? Prints a table with one remedy per line, and sets an exit code."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from perseus_ds.commands.diagnosis import check_files, check_frameworks, check_gloo
from perseus_ds.commands.findings import Finding
from perseus_ds.commands.gpu_checks import check_clock_service, check_gpus, check_zeusd
from perseus_ds.device.site_policy import SitePolicy

__all__ = ["add_parser", "run"]

_MARKS = {"good": "[green]✓[/]", "bad": "[red]✗[/]", "note": "[yellow]–[/]"}


def add_parser(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("doctor", help="check GPU, permissions, frameworks and network", description=__doc__)
    parser.add_argument("--perseus", metavar="FILE", help="also check the needs of this configuration")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--try-clocks",
        action="store_true",
        help="reset every GPU's clocks to see whether it is permitted (disturbs a job that has set them)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run all checks and print the table.

    Returns:
        Exit code: 0 if nothing is bad, else 1.

    Raises:
        PerseusError: The configuration is wrong.
    """
    from perseus_ds.config import load_config

    config = load_config(arguments.perseus) if arguments.perseus else None
    device = config.device if config else None
    address = (device.zeusd_address,) if device else ()
    zeusd = check_zeusd(*address, needed=bool(device and device.backend == "zeusd"))
    observed = bool(config and (config.mode == "observe" or config.device.backend == "observe"))
    findings = [
        *check_gpus(
            simulated=bool(config and config.simulator),
            must_set_clocks=not observed and zeusd.status != "good",
            try_clocks=arguments.try_clocks,
            policy=SitePolicy(device.max_mhz, device.restore_mhz) if device else SitePolicy(),
        ),
        zeusd,
        check_clock_service(),
        *check_frameworks(),
        check_gloo(),
        *check_files(config),
    ]
    bad = sum(finding.status == "bad" for finding in findings)
    if arguments.json:
        print(json.dumps({"good": not bad, "findings": [asdict(finding) for finding in findings]}, indent=1))
    else:
        _print_table(findings, bad)
    return int(bad > 0)


def _print_table(findings: list[Finding], bad: int) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="Will Perseus work on this host?", title_justify="left")
    for heading in ("", "check", "found", "remedy"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        table.add_row(
            _MARKS[finding.status], *(escape(text) for text in (finding.check, finding.found, finding.remedy))
        )
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    console.print("Everything that Perseus needs is here." if not bad else f"{bad} of {len(findings)} checks are bad.")
