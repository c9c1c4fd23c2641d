"""``perseus-ds report RUN_DIR``: make ``report.html`` of a run directory again."""

from __future__ import annotations

import argparse
from typing import Any

from perseus_ds.messages import PerseusError
from perseus_ds.report.page import write_report

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("report", help="make report.html of a run directory again", description=__doc__)
    parser.add_argument("run_dir", metavar="RUN_DIR", help="run directory of a run that is over or still going")


def run(arguments: argparse.Namespace) -> int:
    """Write the report and print where it is.

    Raises:
        PerseusError: No run directory, a damaged file in it, or it cannot be written to.
    """
    try:
        print(write_report(arguments.run_dir))
    except OSError as error:
        raise PerseusError("report-not-written", path=arguments.run_dir, detail=error.strerror) from error
    return 0
