"""The drop-in for Megatron scripts: ``import perseus_ds.megatron`` is the only line to add.

Start the script with ``--perseus FILE``. The option is taken off the command line before the script parses it,
as ``perseus-ds run`` does; Megatron-LM's own ``--help`` lists it. Without it Perseus stays off.
"""

from __future__ import annotations

import argparse
import os
import sys

from perseus_ds import install
from perseus_ds.messages import PerseusError

__all__: list[str] = []


def _take_config_file() -> str | None:
    """Take ``--perseus FILE`` off the command line."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--perseus", metavar="FILE")
    known, sys.argv[1:] = parser.parse_known_args()
    return known.perseus


try:
    install(_take_config_file())
except PerseusError as _error:
    # Every rank meets the same error: one of them tells.
    if os.environ.get("RANK", "0") == "0":
        print(f"perseus_ds: {_error}", file=sys.stderr)
    sys.exit(2)
