"""perseus_ds: less energy for pipeline-parallel training, at the same speed.

Chooses a GPU frequency for every forward and backward from the iteration time-energy frontier (Perseus,
SOSP '24), inside an unchanged DeepSpeed or Megatron-LM job.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perseus_ds.config import Config

__version__ = "0.1.0"
__all__ = ["Config", "add_config_arguments", "install", "set_straggler"]


def __getattr__(name: str) -> Any:
    # Imported on demand, because the clock keeper and the command line start faster without pydantic.
    if name == "Config":
        from perseus_ds.config import Config

        return Config
    raise AttributeError(f"module 'perseus_ds' has no attribute '{name}'")


def install(config: str | Path | Config | None = None) -> None:
    """Put Perseus into DeepSpeed and Megatron, whether they are imported already or will be.

    Call it once, on every rank, before the first training iteration. Does nothing when
    ``PERSEUS_DS_DISABLE=1`` is set.

    Args:
        config: YAML file or checked configuration. None: the ``"perseus"`` section of the DeepSpeed JSON,
            and without such a section Perseus stays off.

    Raises:
        PerseusError: The configuration is wrong, or a framework that is already imported is not supported.
    """
    from perseus_ds.config import Config, load_config
    from perseus_ds.runtime import start

    start(config if config is None or isinstance(config, Config) else load_config(config))


def add_config_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add ``--perseus FILE`` to a training script's own parser; parsing it installs Perseus.

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
    """Announce from outside that a pipeline is, or is no longer, slow.

    May be called on any one rank, between iterations; all ranks act on it together two iterations later.

    Args:
        pipeline: Data-parallel replica, from 0.
        slowdown: Its iteration time as a multiple of the normal; 1.0 takes the announcement back.

    Raises:
        ValueError: ``pipeline`` is negative or ``slowdown`` is below 1.
    """
    from perseus_ds.runtime import announce_straggler

    if pipeline < 0 or slowdown < 1.0:
        raise ValueError(f"pipeline {pipeline} must be >= 0 and slowdown {slowdown} >= 1.0")
    announce_straggler(pipeline, slowdown)


class _Install(argparse.Action):
    """Installs Perseus when ``--perseus`` is parsed; a wrong file ends the program like a wrong argument."""

    def __call__(self, parser, namespace, values, option_string=None):
        from perseus_ds.messages import PerseusError

        try:
            install(str(values))
        except PerseusError as error:
            parser.exit(2, f"perseus_ds: {error}\n")
        setattr(namespace, self.dest, values)
