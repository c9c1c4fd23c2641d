"""A process that trains beside others on the same GPU, with a logging keeper of its own, until its input ends."""

from __future__ import annotations

import select
import sys

from perseus_ds.silicon.cuda_lab import CudaLab
from perseus_ds.silicon.lab import Host
from perseus_ds.silicon.position import Situation, measure

__all__ = ["main"]


def main() -> int:
    """Train until the input ends."""
    lab = CudaLab()
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.0)[0]:
        measure(lab, Situation(0.2, Host.LAUNCHES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
