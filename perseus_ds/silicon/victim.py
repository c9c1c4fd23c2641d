"""A process with a GPU and a clock keeper that observes, made to die."""

from __future__ import annotations

import select
import sys
from collections.abc import Sequence

import torch

from perseus_ds.config import DeviceConfig
from perseus_ds.device.clock_keeper import ClockKeeper

__all__ = ["main"]


def main(arguments: Sequence[str]) -> None:
    """Work on and on; tell the keeper's process first.

    Args:
        arguments: None.

    Raises:
        RuntimeError: Inside an iteration, once the input ends.
    """
    on_gpu = torch.cuda.is_available()
    uuid = str(torch.cuda.get_device_properties(0).uuid) if on_gpu else None
    keeper = ClockKeeper.start(uuid=uuid, device=DeviceConfig(backend="observe"))
    work = torch.ones(1024, 1024, device="cuda" if on_gpu else "cpu")
    print(keeper.info.pid, flush=True)
    while True:
        work = work @ work / 1024.0
        if select.select([sys.stdin], [], [], 0.01)[0]:
            raise RuntimeError("an exception inside an iteration")


if __name__ == "__main__":
    main(sys.argv[1:])
