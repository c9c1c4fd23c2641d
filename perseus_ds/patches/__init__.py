"""The framework patches: the only code that knows the inside of DeepSpeed and Megatron-Core.

``docs/adding-a-framework-version.md`` shows how to support another version.
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
    """Hook every known framework, now if it is imported, else at its import.

    Args:
        listener: Receives the events. A second installation only replaces the listener.
        on_unsupported: ``"error"``: an unsupported framework raises at its import, or here if it is imported.
            ``"warn"``: it trains without Perseus, after a warning.

    Raises:
        PerseusError: An imported framework is not supported.
    """
    for integration in INTEGRATIONS:
        integration.install(listener, on_unsupported)


def uninstall_all() -> None:
    """Restore every framework to its original state."""
    for integration in INTEGRATIONS:
        integration.uninstall()
