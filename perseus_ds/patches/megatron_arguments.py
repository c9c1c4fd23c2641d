"""``--perseus`` in Megatron-LM's own argument parser and in its ``--help``."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import Any

from .integration import Integration
from .target import Target

__all__ = ["MEGATRON_ARGUMENTS"]

_ARGUMENTS = "megatron.training.arguments"


def _wrap_add_arguments(original: Callable[..., Any], integration: Integration) -> Callable[..., Any]:
    @functools.wraps(original)
    def add_megatron_arguments(*args: Any, **kwargs: Any) -> argparse.ArgumentParser:
        return _completed(original(*args, **kwargs), integration)

    return add_megatron_arguments


def _wrap_parse_args(original: Callable[..., Any], integration: Integration) -> Callable[..., Any]:
    @functools.wraps(original)
    def parse_args(extra_args_provider: Callable[..., Any] | None = None, *args: Any, **kwargs: Any) -> Any:
        def provide(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
            return _completed(extra_args_provider(parser) if extra_args_provider else parser, integration)

        return original(provide, *args, **kwargs)

    return parse_args


def _completed(parser: argparse.ArgumentParser, integration: Integration) -> argparse.ArgumentParser:
    """Let the listener add its options."""
    if integration.listener is not None:
        integration.listener.arguments_defined(parser)
    return parser


# In order of preference: older revisions have the second alone.
_WRAPS = {"add_megatron_arguments": _wrap_add_arguments, "parse_args": _wrap_parse_args}


def _find_targets() -> tuple[Target, ...]:
    # A line of --help is no reason to stop a training: where it cannot be added it is left out.
    found = [Target(_ARGUMENTS, name, wrap=wrap) for name, wrap in _WRAPS.items()]
    return tuple(target for target in found if target.exists())[:1]


MEGATRON_ARGUMENTS = Integration("megatron.training", _ARGUMENTS, None, _find_targets)
"""Megatron-LM's argument parser; it has no version of its own."""
