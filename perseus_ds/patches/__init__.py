"""The patches of the frameworks: the only place that knows how DeepSpeed and Megatron-Core look inside.

``docs/adding-a-framework-version.md`` tells how to support another version.
"""

from __future__ import annotations

from perseus_ds.pipeline.events import Listener

from .deepspeed import DEEPSPEED
from .integration import Integration, Policy
from .megatron_arguments import MEGATRON_ARGUMENTS
from .megatron_schedules import MEGATRON

__all__ = ["INTEGRATIONS", "install_all", "uninstall_all"]

INTEGRATIONS: tuple[Integration, ...] = (DEEPSPEED, MEGATRON, MEGATRON_ARGUMENTS)


def install_all(listener: Listener, on_unsupported: Policy = "error") -> None:
    """Hook every known framework, whether it is imported already or will be.

    Args:
        listener: Gets the events. Installing again only replaces the listener.
        on_unsupported: ``"error"``: a framework that does not fit raises when it is imported (or here, when it
            is already); ``"warn"``: it trains without us, after a warning.

    Raises:
        PerseusError: A framework that is already imported does not fit.
    """
    for integration in INTEGRATIONS:
        integration.install(listener, on_unsupported)


def uninstall_all() -> None:
    """Leave every framework as it was found."""
    for integration in INTEGRATIONS:
        integration.uninstall()
