"""The frameworks' own monitors, for users of TensorBoard or W&B."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["WriteEvents", "framework_monitors", "offer_monitor"]

WriteEvents = Callable[[Sequence[tuple[str, float, int]]], None]
"""Takes rows of (tag, value, step), all of one step."""

_offered: list[weakref.ref[Any]] = []


def offer_monitor(engine: Any) -> None:
    """Remember the training DeepSpeed engine: it has a monitor, and counts the logged steps."""
    _offered[:] = [weakref.ref(engine)]


def framework_monitors(coordinates: bool) -> list[WriteEvents]:
    """Return the writers, on this rank, to the monitors that the user has enabled.

    DeepSpeed writes to TensorBoard, W&B, Comet and CSV on the first rank. Megatron-LM has two writers on the last rank.

    Args:
        coordinates: Whether this is the first rank.
    """
    engine = _offered[0]() if _offered else None
    if coordinates and engine is not None and getattr(engine.monitor, "enabled", False):
        return [_deepspeed(_offered[0])]
    variables = sys.modules.get("megatron.training.global_vars")
    if variables is None:
        return []
    writers = ((_tensorboard, variables.get_tensorboard_writer()), (_wandb, variables.get_wandb_writer()))
    # There are arguments where there is a writer; their iteration is the checkpoint's.
    return [make(writer, variables.get_args().iteration) for make, writer in writers if writer is not None]


def _deepspeed(reference: weakref.ref[Any]) -> WriteEvents:
    def write_events(rows: Sequence[tuple[str, float, int]]) -> None:
        if (engine := reference()) is not None:
            # At the step of the engine's own latest row: W&B would drop an earlier one, or after a later one the next.
            engine.monitor.write_events([(tag, value, engine.global_samples) for tag, value, _ in rows])

    return write_events


def _tensorboard(writer: Any, begin: int) -> WriteEvents:
    def write_events(rows: Sequence[tuple[str, float, int]]) -> None:
        for tag, value, step in rows:
            writer.add_scalar(tag, value, begin + step)

    return write_events


def _wandb(wandb: Any, begin: int) -> WriteEvents:
    @functools.cache
    def define_axis() -> None:
        wandb.define_metric("perseus_ds/*", step_metric="perseus_ds/iteration")

    def write_events(rows: Sequence[tuple[str, float, int]]) -> None:
        values: dict[str, float] = {tag: value for tag, value, _ in rows}
        values["perseus_ds/iteration"] = begin + max((step for _, _, step in rows), default=0)
        define_axis()
        # Goes with Megatron-LM's next row: W&B drops rows of earlier steps, and a step of ours would make theirs such.
        wandb.log(values, commit=False)

    return write_events
