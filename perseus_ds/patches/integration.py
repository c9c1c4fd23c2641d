"""How a framework is hooked: check everything, then replace, and put back what is still ours."""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import wrapt
from packaging.specifiers import SpecifierSet

from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.events import Listener, Operation, Transfer
from perseus_ds.pipeline.kinds import Kind

__all__ = ["Integration", "Policy", "Target", "argument", "exchange", "instruction", "reported"]

Policy = Literal["error", "warn"]

_ABSENT = object()


@dataclass(frozen=True)
class Target:
    """One attribute of a framework that we rely on.

    Attributes:
        module: Name of the module that holds it.
        path: The way to it within the module, such as ``"PipelineEngine.train_batch"``.
        parameters: Parameters that it must have.
        wrap: Makes the replacement from the original; None: it must exist and is left alone.
    """

    module: str
    path: str
    parameters: tuple[str, ...] = ()
    wrap: Callable[[Any, Integration], Any] | None = None

    def holder(self) -> Any:
        """Return the module or class whose attribute it is.

        Raises:
            AttributeError: There is none.
        """
        *parents, _ = self.path.split(".")
        return functools.reduce(getattr, parents, importlib.import_module(self.module))

    @property
    def name(self) -> str:
        """Name of the attribute within its holder."""
        return self.path.rpartition(".")[2]


class _Patch:
    """One attribute that was replaced, and what it was."""

    def __init__(self, holder: Any, name: str, replacement: Any) -> None:
        self._holder = weakref.ref(holder)
        self._name = name
        self._original = vars(holder).get(name, _ABSENT)
        self._replacement = replacement
        setattr(holder, name, replacement)

    def restore(self) -> None:
        """Put the original back, unless somebody else has replaced ours."""
        holder = self._holder()
        if holder is None or vars(holder).get(self._name) is not self._replacement:
            return
        if self._original is _ABSENT:
            delattr(holder, self._name)
        else:
            setattr(holder, self._name, self._original)


class Integration:
    """The patches of one framework.

    Args:
        name: What the framework is called.
        package: Module whose import, once complete, brings the patches.
        supported: Range of versions, as pip writes it; None: the package has no ``__version__``, all are.
        find_targets: Returns what is relied on, once the package is imported.

    Attributes:
        listener: Gets the events; None while not installed, so that a wrapper that somebody kept is quiet.
        on_unsupported: What happens when the framework does not fit.
    """

    def __init__(
        self, name: str, package: str, supported: str | None, find_targets: Callable[[], Sequence[Target]]
    ) -> None:
        self.name = name
        self.package = package
        self.supported = SpecifierSet(supported or "")
        self.listener: Listener | None = None
        self.on_unsupported: Policy = "error"
        self._find_targets = find_targets
        self._patches: list[_Patch] = []
        self._registered = False

    @property
    def framework(self) -> str:
        """Name and version of the imported framework, such as ``"deepspeed 0.19.8"``."""
        return f"{self.name} {self._version}"

    def targets(self) -> Sequence[Target]:
        """Return what is relied on in the imported version."""
        return self._find_targets()

    def check(self) -> None:
        """Look at the version and at every target before anything is changed.

        Raises:
            PerseusError: The version is outside the range, or a target is missing or has other parameters.
        """
        version = self._version
        if not self.supported.contains(version, prereleases=True):
            raise PerseusError("framework-unsupported", framework=self.name, version=version, supported=self.supported)
        for target in self.targets():
            detail = _misfit(target)
            if detail:
                raise PerseusError("framework-changed", framework=self.framework, detail=detail)

    def install(self, listener: Listener, on_unsupported: Policy = "error") -> None:
        """Hook the framework now if it is imported, else as soon as it is. Twice is once.

        Args:
            listener: Gets the events from now on.
            on_unsupported: ``"error"`` or ``"warn"``.

        Raises:
            PerseusError: The framework is imported, does not fit, and ``on_unsupported`` is ``"error"``.
        """
        self.listener = listener
        self.on_unsupported = on_unsupported
        if not self._registered:
            self._registered = True
            wrapt.register_post_import_hook(self._imported, self.package)
        elif self.package in sys.modules:
            self._patch()

    def uninstall(self) -> None:
        """Leave the framework as it was found; what others have replaced since stays theirs."""
        self.listener = None
        while self._patches:
            self._patches.pop().restore()

    def replace(self, holder: Any, name: str, replacement: Any) -> None:
        """Replace an attribute until ``uninstall``."""
        self._patches.append(_Patch(holder, name, replacement))

    def refuse(self, error: PerseusError) -> None:
        """Do what ``on_unsupported`` says about a framework or a mode of it that does not fit.

        Raises:
            PerseusError: ``on_unsupported`` is ``"error"``.
        """
        if self.on_unsupported == "error":
            raise error
        self.uninstall()
        # Every rank meets the same error: one of them tells.
        if os.environ.get("RANK", "0") == "0":
            logging.getLogger("perseus_ds").warning("training goes on without Perseus: %s", error)

    @property
    def _version(self) -> str:
        return getattr(sys.modules[self.package], "__version__", "0")

    def _imported(self, _: ModuleType) -> None:
        if self.listener is not None:
            self._patch()

    def _patch(self) -> None:
        if self._patches:
            return
        try:
            self.check()
        except PerseusError as error:
            self.refuse(error)
            return
        for target in self.targets():
            if target.wrap is not None:
                holder = target.holder()
                self.replace(holder, target.name, target.wrap(getattr(holder, target.name), self))


def reported(
    integration: Integration, original: Callable[..., Any], describe: Callable[..., Operation | None]
) -> Callable[..., Any]:
    """Return ``original`` with its begin and end reported.

    Args:
        integration: Whose listener is told.
        original: Function of the framework.
        describe: Returns the operation from the call's arguments; None: this call is not reported.
    """

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        listener = integration.listener
        operation = describe(*args, **kwargs) if listener is not None else None
        if listener is None or operation is None:
            return original(*args, **kwargs)
        listener.operation_begin(operation)
        result = original(*args, **kwargs)
        listener.operation_end(operation)
        return result

    return run


def argument(function: Callable[..., Any], name: str) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """Return what finds the argument ``name`` in a call of ``function``."""
    index = list(inspect.signature(function).parameters).index(name)

    def find(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[index] if index < len(args) else kwargs.get(name)

    return find


@functools.cache
def instruction(kind: Kind, microbatch: int, chunk: int) -> Operation:
    """Return the one operation object with these values: making one costs more than looking it up."""
    return Operation(kind, microbatch, chunk)


@functools.cache
def exchange(kind: Kind, transfers: tuple[Transfer, ...]) -> Operation:
    """Return the one communication with these transfers."""
    return Operation(kind, transfers=transfers)


def _misfit(target: Target) -> str | None:
    """Return what is wrong with a target; None: it fits."""
    where = f"{target.module}.{target.path}"
    try:
        found = getattr(target.holder(), target.name)
    except (AttributeError, ImportError):
        return f"{where} is missing"
    if not target.parameters:
        return None
    missing = [name for name in target.parameters if name not in inspect.signature(found).parameters]
    return f"{where} has no parameter '{missing[0]}'" if missing else None
