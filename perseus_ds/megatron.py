"""The drop-in for Megatron scripts: add the one line ``import perseus_ds.megatron``.

Start the script with ``--perseus FILE``; without it Perseus stays off. As in ``perseus-ds run``, the script does not
see the option. Megatron-LM's own ``--help`` lists it.
"""

from __future__ import annotations

import argparse
import sys

from perseus_ds import install
from perseus_ds.console import say_why_it_ends
from perseus_ds.messages import PerseusError

__all__: list[str] = []


def _take_config_file() -> str | None:
    """Remove ``--perseus FILE`` from the command line and return the file."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--perseus", metavar="FILE")
    known, sys.argv[1:] = parser.parse_known_args()
    return known.perseus


try:
    install(_take_config_file())
except PerseusError as _error:
    say_why_it_ends(_error)
    sys.exit(2)
