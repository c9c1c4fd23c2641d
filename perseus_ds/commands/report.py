"""``perseus-ds report RUN_DIR``: write ``report.html`` of a run directory again."""

from __future__ import annotations

import argparse
from typing import Any

from perseus_ds.messages import PerseusError
from perseus_ds.report.claims import claims_of
from perseus_ds.report.page import write_report
from perseus_ds.report.rundata import read_run, telling_of_damage

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("report", help="write report.html of a run directory again", description=__doc__)
    parser.add_argument("run_dir", metavar="RUN_DIR", help="run directory of a finished or running job")


def run(arguments: argparse.Namespace) -> int:
    """Write the report and print its path; of a simulated run also what it claims and what is true.

    Raises:
        PerseusError: The run directory is missing, damaged or not writable.
    """
    try:
        with telling_of_damage(arguments.run_dir):
            print(write_report(arguments.run_dir))
            claims = claims_of(read_run(arguments.run_dir))
            for title, claimed, true in claims.rows() if claims else ():
                print(f"{title}: claimed {claimed}, true {true}" if claimed else f"{title}: {true}")
    except OSError as error:
        raise PerseusError("report-not-written", path=arguments.run_dir, detail=error.strerror) from error
    return 0
