"""``python -m perseus_ds.silicon``: the experiments on one GPU, by reading only."""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from perseus_ds.device.reading_only import forbid_setting
from perseus_ds.silicon.check import EXPERIMENTS, TIME, check, write
from perseus_ds.silicon.lab import Lab
from perseus_ds.silicon.virtual_lab import VirtualLab

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run experiments and write ``gpu-check.json`` and ``silicon.md``.

    Args:
        arguments: Command line; default: ``sys.argv``.

    Returns:
        0 if all passed.
    """
    known = [*EXPERIMENTS, TIME]
    parser = argparse.ArgumentParser(prog="python -m perseus_ds.silicon", description=main.__doc__)
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=f"default: all of {', '.join(known)}")
    parser.add_argument("--virtual", action="store_true", help="use a virtual GPU even if there is a real one")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/gpu-check"), help="directory of the results")
    options = parser.parse_args(arguments)
    if unknown := set(options.experiments) - set(known):
        parser.error(f"no experiment {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    forbid_setting()
    names = options.experiments or known
    with tempfile.TemporaryDirectory() as directory:
        found = check(_labs(options.virtual, Path(directory)), names, lambda line: print(line, flush=True))
    write(found, options.output)
    failed = [one["name"] for one in found["experiments"] if not one["passed"]]
    world = "a virtual GPU: nothing was measured on silicon" if found["virtual"] else found["gpu"]
    print(f"gpu-check: {len(names) - len(failed)} of {len(names)} passed on {world}; see {options.output}/silicon.md")
    return int(bool(failed))


def _labs(virtual: bool, directory: Path) -> Callable[[], Lab]:
    """Return what makes a lab: on this machine's GPU if there is one and it is wanted."""
    import torch

    if torch.cuda.is_available() and not virtual:
        from perseus_ds.silicon.cuda_lab import CudaLab  # compiles kernels

        return CudaLab
    numbers = itertools.count()

    def make_lab() -> Lab:
        own = directory / str(next(numbers))
        own.mkdir()
        return VirtualLab(own)

    return make_lab


if __name__ == "__main__":
    sys.exit(main())
