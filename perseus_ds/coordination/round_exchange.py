"""A round: every rank contributes a few floats, and receives one condensed row per pipeline."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from perseus_ds.coordination.channel import Channel

__all__ = ["Condense", "exchange_round"]

_FAILED = float("nan")

Condense = Callable[[np.ndarray], np.ndarray]
"""Reduces an array (ranks of a pipeline, floats) to one row of floats."""


def exchange_round(channel: Channel, row: np.ndarray, condense: Condense, width: int) -> np.ndarray:
    """Give every rank the condensed rows of all pipelines; all ranks call it.

    Args:
        channel: The channel to use.
        row: This rank's floats, float64.
        condense: Reduces the floats of a pipeline's ranks to one row, on the leader.
        width: Length of that row.

    Returns:
        Array (pipelines, width), the same on all ranks.

    Raises:
        RuntimeError: It has failed between this rank's leader and the others.
    """
    rows = channel.pipeline.gather(torch.from_numpy(row))
    everything = torch.full((channel.pipelines, width), _FAILED, dtype=torch.float64)
    if rows:
        try:
            condensed = torch.from_numpy(condense(torch.stack(rows).numpy()))
            everything = condensed[None] if channel.leaders is None else channel.leaders.all_gather(condensed)
        except Exception:
            channel.pipeline.broadcast(everything)  # its members wait
            raise
    received = channel.pipeline.broadcast(everything).numpy()
    if np.isnan(received).all():
        raise RuntimeError("the round has failed between the pipelines")
    return received
