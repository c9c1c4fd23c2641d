"""Checkpoints of the frameworks: the hooks report each save and load directory to the listener."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from perseus_ds.pipeline.events import Listener

from .integration import Integration, argument
from .target import Target

__all__ = ["loading", "saving"]


def saving(module: str, path: str, directory: str) -> Target:
    """Return the target for a framework function that saves checkpoints.

    Args:
        module: Name of its module.
        path: Its name in the module, ``Class.name`` for a method.
        directory: Name of its directory argument.
    """
    wrap = functools.partial(_wrap, tell=lambda listener, where: listener.checkpoint_saved(where), directory=directory)
    return Target(module, path, (directory,), wrap)


def loading(module: str, path: str, directory: str) -> Target:
    """Return the target for a framework function that loads checkpoints; arguments as in ``saving``."""
    wrap = functools.partial(_wrap, tell=lambda listener, where: listener.checkpoint_loaded(where), directory=directory)
    return Target(module, path, (directory,), wrap)


def _wrap(
    original: Callable[..., Any], integration: Integration, tell: Callable[[Listener, str], None], directory: str
) -> Callable[..., Any]:
    directory_of = argument(original, directory)

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if integration.listener is not None:
            tell(integration.listener, str(directory_of(args, kwargs)))
        return result

    return run
