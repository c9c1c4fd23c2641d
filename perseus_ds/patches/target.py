"""What the hooks rely on in a framework, and whether that is there."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .integration import Integration

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """One framework attribute that the hooks rely on.

    Attributes:
        module: Name of its module.
        path: Its path within the module, such as ``"PipelineEngine.train_batch"``.
        parameters: Parameters that it must have.
        calls: Global functions that it must look up by name whenever it calls them, so that replacing them works.
        wrap: Makes the replacement from the original; None: the attribute must exist and stays.
    """

    module: str
    path: str
    parameters: tuple[str, ...] = ()
    wrap: Callable[[Any, Integration], Any] | None = None
    calls: tuple[str, ...] = ()

    def holder(self) -> Any:
        """Return the module or class that holds the attribute.

        Raises:
            AttributeError: There is none.
        """
        *parents, _ = self.path.split(".")
        return functools.reduce(getattr, parents, importlib.import_module(self.module))

    def exists(self) -> bool:
        """Return whether the framework has it."""
        try:
            return hasattr(self.holder(), self.name)
        except (AttributeError, ImportError):
            return False

    def misfit(self) -> str | None:
        """Return what is wrong with the target in this framework; None: it fits."""
        where = f"{self.module}.{self.path}"
        if not self.exists():
            return f"{where} is missing"
        if not self.parameters and not self.calls:
            return None
        found = getattr(self.holder(), self.name)
        missing = [name for name in self.parameters if name not in inspect.signature(found).parameters]
        if missing:
            return f"{where} has no parameter '{missing[0]}'"
        uncalled = [name for name in self.calls if name not in _global_names(inspect.unwrap(found).__code__)]
        return f"{where} does not call '{uncalled[0]}' by its name" if uncalled else None

    @property
    def name(self) -> str:
        """Name of the attribute within its holder."""
        return self.path.rpartition(".")[2]


def _global_names(code: CodeType) -> set[str]:
    """Return the global names and attributes that a function and the functions within it use."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(_global_names, inner))
