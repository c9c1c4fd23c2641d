"""perseus_ds: less energy for pipeline-parallel training, at the same speed.

It chooses a GPU frequency for every forward and backward from the time-energy frontier of the iteration (Perseus,
SOSP '24). It runs inside an unchanged DeepSpeed or Megatron-LM job.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perseus_ds.config import Config

__version__ = "0.1.0"
__all__ = ["Config", "add_config_arguments", "install", "set_objective", "set_straggler"]


def __getattr__(name: str) -> Any:
    # Imported on demand, because the clock keeper and the command line start faster without pydantic.
    if name == "Config":
        from perseus_ds.config import Config

        return Config
    raise AttributeError(f"module 'perseus_ds' has no attribute '{name}'")


def install(config: str | Path | Config | None = None) -> None:
    """Hook DeepSpeed and Megatron, now if they are imported, else at their import.

    Call it once on every rank, before the first training iteration. ``PERSEUS_DS_DISABLE=1`` turns it into a no-op.

    Args:
        config: YAML file or checked configuration. None: the ``"perseus"`` section of the DeepSpeed JSON;
            without such a section Perseus stays off.

    Raises:
        PerseusError: The configuration is wrong, or an imported framework is not supported.
    """
    from perseus_ds.config import Config, load_config
    from perseus_ds.console import show_log
    from perseus_ds.runtime import start

    show_log()
    start(config if config is None or isinstance(config, Config) else load_config(config))


def add_config_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add ``--perseus FILE`` to the parser of a training script; parsing the option installs Perseus.

    Mirrors ``deepspeed.add_config_arguments``.

    Args:
        parser: The script's parser.

    Returns:
        The same parser.
    """
    group = parser.add_argument_group("Perseus", "Energy-saving GPU frequencies")
    group.add_argument("--perseus", metavar="FILE", action=_Install, help="Perseus configuration (YAML)")
    return parser


def set_straggler(pipeline: int, slowdown: float) -> None:
    """Announce a slow pipeline, or its recovery.

    Call it on any one rank, between iterations. All ranks respond together two iterations later.

    Args:
        pipeline: Data-parallel replica, from 0.
        slowdown: Its iteration time as a multiple of the normal one; 1.0 ends the announcement.

    Raises:
        ValueError: ``pipeline`` is negative or ``slowdown`` is below 1.
    """
    from perseus_ds.coordination.orders import Order
    from perseus_ds.runtime import place_order

    if pipeline < 0 or not slowdown >= 1.0:
        raise ValueError(f"pipeline {pipeline} must be >= 0 and slowdown {slowdown} >= 1.0")
    place_order(Order("straggler", pipeline, slowdown))


def set_objective(objective: str | None) -> None:
    """Pursue another objective from now on.

    Call it on any one rank, between iterations. All ranks switch together two iterations later; before the first plans
    the order waits for them.

    Args:
        objective: Such as ``min_time``, ``min_energy``, ``slowdown=1.05``, ``deadline=2.5s`` or ``power=12kW``; None:
            the configured one.

    Raises:
        PerseusError: It is none of these.
    """
    from perseus_ds.coordination.orders import objective_order
    from perseus_ds.frontier.objective_forms import parse_objective
    from perseus_ds.runtime import place_order

    place_order(objective_order(None if objective is None else parse_objective(objective)))


class _Install(argparse.Action):
    """Installs Perseus when ``--perseus`` is parsed; a bad file ends the program like a bad argument."""

    def __call__(self, parser, namespace, values, option_string=None):
        from perseus_ds.messages import PerseusError

        try:
            install(str(values))
        except PerseusError as error:
            parser.exit(2, f"perseus_ds: {error}\n")
        setattr(namespace, self.dest, values)
