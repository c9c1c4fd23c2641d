"""Hooks a framework: checks everything, then replaces attributes, and later restores its own."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import weakref
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Literal, TypeVar

import wrapt
from packaging.specifiers import SpecifierSet

from perseus_ds.messages import PerseusError, one_line
from perseus_ds.pipeline.events import Listener, Operation, Transfer
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.ranks import tells_for_all

from .target import Target

__all__ = ["Integration", "Policy", "argument", "exchange", "instruction", "reported"]

Policy = Literal["error", "warn"]

_ABSENT = object()
_Found = TypeVar("_Found")


class _Patch:
    """One replaced attribute and its original."""

    def __init__(self, holder: Any, name: str, replacement: Any) -> None:
        self._holder = weakref.ref(holder)
        self._name = name
        self._original = vars(holder).get(name, _ABSENT)
        self._replacement = replacement
        setattr(holder, name, replacement)

    def restore(self) -> None:
        """Put the original back, unless someone else has replaced ours."""
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
        name: Name of the framework.
        package: Module whose completed import triggers the patches.
        tested: Range of versions in pip's notation that the tests have seen; None: the package has no
            ``__version__``. A version outside is tried, after a warning: the targets decide.
        find_targets: Returns the targets, after the import.

    Attributes:
        listener: Receives the events; None while not installed, so that leftover wrappers stay silent.
        on_unsupported: Response to an unsupported framework.
    """

    def __init__(
        self, name: str, package: str, tested: str | None, find_targets: Callable[[], Sequence[Target]]
    ) -> None:
        self.name = name
        self.package = package
        self.tested = SpecifierSet(tested or "")
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
        """Return the targets in the imported version."""
        return self._find_targets()

    def check(self) -> None:
        """Check every target before any change.

        Raises:
            PerseusError: A target is missing, has other parameters, or makes other calls.
        """
        for target in self.targets():
            if detail := target.misfit():
                raise self._changed(detail)

    def untested(self) -> PerseusError | None:
        """Return the remark on a version that no test has seen; None: the tests have seen it."""
        if self.tested.contains(self._version, prereleases=True):
            return None
        return PerseusError("framework-untested", framework=self.framework, tested=self.tested)

    def install(self, listener: Listener, on_unsupported: Policy = "error") -> None:
        """Hook the framework, now if it is imported, else at its import. A second call changes nothing.

        Args:
            listener: Receives the events from now on.
            on_unsupported: ``"error"`` or ``"warn"``.

        Raises:
            PerseusError: The imported framework is not supported, and ``on_unsupported`` is ``"error"``.
        """
        self.listener = listener
        self.on_unsupported = on_unsupported
        if not self._registered:
            self._registered = True
            wrapt.register_post_import_hook(self._imported, self.package)
        elif self.package in sys.modules:
            self._patch()

    def uninstall(self) -> None:
        """Restore the framework's original attributes; later replacements by others stay."""
        self.listener = None
        while self._patches:
            self._patches.pop().restore()

    def replace(self, holder: Any, name: str, replacement: Any) -> None:
        """Replace an attribute until ``uninstall``."""
        self._patches.append(_Patch(holder, name, replacement))

    def refuse(self, error: PerseusError) -> None:
        """Raise or warn about an unsupported framework or mode, as ``on_unsupported`` says.

        Raises:
            PerseusError: ``on_unsupported`` is ``"error"``.
        """
        if self.on_unsupported == "error":
            raise error
        listener, hooked = self.listener, bool(self._patches)
        self.uninstall()
        if listener is not None and hooked:
            listener.unhooked()
        _warn(f"training goes on without Perseus: {error}")

    def look(self, at: Callable[[], _Found]) -> _Found | None:
        """Return what the framework's objects tell; refuse a release whose objects are other ones.

        Args:
            at: Looks at them.
        """
        try:
            return at()
        except (AssertionError, AttributeError, LookupError, TypeError) as error:
            self.refuse(self._changed(f"{type(error).__name__}: {one_line(error)}"))
            return None

    def refuse_mode(self, flag: str, reason: str) -> None:
        """Refuse a mode that hides forwards and backwards; see ``refuse``.

        Args:
            flag: The mode, by its option where it has one.
            reason: What hides them.
        """
        self.refuse(PerseusError("framework-mode", framework=self.framework, flag=flag, reason=reason))

    def expect_passes(self, forwards: int, backwards: int, expected: int) -> None:
        """Refuse a mode that nobody knows yet: fewer or more passes were seen in an iteration than it must have."""
        if (forwards, backwards) != (expected, expected):
            seen = f"{forwards} forwards and {backwards} backwards were seen, of {expected} each"
            self.refuse_mode("a mode that Perseus does not know", seen)

    def _changed(self, detail: str) -> PerseusError:
        tested = self.tested or "unmodified"
        return PerseusError("framework-changed", framework=self.framework, detail=detail, tested=tested)

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
        if untested := self.untested():
            _warn(str(untested))
        for target in self.targets():
            if target.wrap is not None:
                holder = target.holder()
                self.replace(holder, target.name, target.wrap(getattr(holder, target.name), self))


def reported(
    integration: Integration, original: Callable[..., Any], describe: Callable[..., Operation | None]
) -> Callable[..., Any]:
    """Return ``original`` with its begin and end reported.

    Args:
        integration: Its listener receives the reports.
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
    """Return a function that finds the argument ``name`` in a call of ``function``."""
    index = list(inspect.signature(function).parameters).index(name)

    def find(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[index] if index < len(args) else kwargs.get(name)

    return find


@functools.cache
def instruction(kind: Kind, microbatch: int, chunk: int) -> Operation:
    """Return the cached operation with these values: a lookup costs less than a new object."""
    return Operation(kind, microbatch, chunk)


@functools.cache
def exchange(kind: Kind, transfers: tuple[Transfer, ...]) -> Operation:
    """Return the cached communication with these transfers."""
    return Operation(kind, transfers=transfers)


def _warn(text: str) -> None:
    # Every rank meets the same: one of them tells.
    if tells_for_all():
        logging.getLogger("perseus_ds").warning("%s", text)
