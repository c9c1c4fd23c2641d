"""What ranks send each other, as bytes that can only become data.

Whoever reaches a socket of the bus may send anything. So nothing here calls what arrives: a message becomes containers,
arrays, and objects of Perseus's own classes, without their constructors.
"""

from __future__ import annotations

import importlib
import json
from collections import deque
from collections.abc import Iterable
from enum import Enum
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from pydantic import BaseModel

__all__ = ["decode", "encode"]

_ATOMS = frozenset({type(None), bool, int, float, str})
_CONTAINERS = {kind.__name__: kind for kind in (tuple, list, set, frozenset)}
_PACKAGES = ("config", "coordination", "frontier", "messages", "pipeline", "profiling", "runtime")
_ARRAYS = "biufcU"
"""Kinds of arrays: numbers and text, no Python objects."""
_LENGTH = 8
"""Bytes of a message that tell the length of its text; arrays follow it."""


def encode(value: Any) -> bytes:
    """Return a value as bytes; what it holds twice is one object at the receiver, too.

    Args:
        value: Of containers, arrays, enums, paths, and objects of Perseus's classes.

    Raises:
        TypeError: It holds something else.
    """
    writer = _Writer()
    text = json.dumps([writer.nodes, writer.put(value)], separators=(",", ":")).encode()
    return b"".join((len(text).to_bytes(_LENGTH, "little"), text, *writer.blobs))


def decode(data: bytes) -> Any:
    """Return the value of ``encode``.

    Raises:
        ValueError: The bytes are not from ``encode``.
    """
    try:
        end = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
        nodes, root = json.loads(data[_LENGTH:end])
        reader = _Reader(memoryview(data)[end:])
        for node in nodes:
            reader.take(node)
        return reader.get(root)
    except (ArithmeticError, AttributeError, ImportError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"not a message: {type(error).__name__}: {error}") from error


class _Writer:
    """Collects the parts of a value, each after all that it holds.

    An atom stands for itself. A list of one number stands for the part with that number.
    """

    def __init__(self) -> None:
        self.nodes: list[list[Any]] = []
        self.blobs: list[bytes] = []
        self._at = 0
        self._known: dict[int, tuple[Any, list[int]]] = {}  # keeps its objects alive: their ids stay theirs

    def put(self, value: Any) -> Any:
        if type(value) in _ATOMS:
            return value
        if (known := self._known.get(id(value))) is not None:
            return known[1]
        node = self._node(value)
        number = [len(self.nodes)]
        self.nodes.append(node)
        self._known[id(value)] = value, number
        return number

    def _all(self, values: Iterable[Any]) -> list[Any]:
        values = list(values)
        return values if _ATOMS.issuperset(map(type, values)) else [self.put(one) for one in values]

    def _node(self, value: Any) -> list[Any]:
        cls = type(value)
        if cls.__name__ in _CONTAINERS and cls is _CONTAINERS[cls.__name__]:
            return [cls.__name__, self._all(value)]
        if cls is dict:
            return ["dict", self._all(value), self._all(value.values())]
        if cls is deque:
            return ["deque", value.maxlen, self._all(value)]
        if cls is bytes:
            return ["bytes", *self._blob(value)]
        if isinstance(value, np.ndarray | np.generic):
            if value.dtype.kind not in _ARRAYS:
                raise TypeError(f"an array of {value.dtype} cannot be sent")
            where = self._blob(np.ascontiguousarray(value).tobytes())
            return ["array" if cls is np.ndarray else "scalar", value.dtype.str, value.shape, *where]
        if isinstance(value, PurePath):
            return ["path", str(value)]
        return self._object(value, cls)

    def _object(self, value: Any, cls: type) -> list[Any]:
        name = _name(cls)
        if isinstance(value, Enum):
            return ["enum", name, self.put(value.value)]
        if isinstance(value, tuple):
            return ["record", name, self._all(value)]
        if isinstance(value, BaseModel):
            return ["model", name, self.put(value.__getstate__())]
        return ["object", name, list(vars(value)), self._all(vars(value).values())]

    def _blob(self, data: bytes) -> tuple[int, int]:
        begin = self._at
        self.blobs.append(data)
        self._at += len(data)
        return begin, self._at


class _Reader:
    """Rebuilds the parts, one after the other."""

    def __init__(self, blob: memoryview) -> None:
        self._blob = blob
        self._parts: list[Any] = []

    def get(self, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        (number,) = value
        return self._parts[number]

    def take(self, node: list[Any]) -> None:
        kind, *rest = node
        self._parts.append(self._made(kind, *rest))

    def _all(self, values: list[Any]) -> list[Any]:
        return [self.get(one) for one in values] if list in map(type, values) else values

    def _made(self, kind: str, *rest: Any) -> Any:
        match kind, *rest:
            case (("tuple" | "list" | "set" | "frozenset"), values):
                return _CONTAINERS[kind](self._all(values))
            case "dict", keys, values:
                return dict(zip(self._all(keys), self._all(values), strict=True))
            case "deque", most, values:
                return deque(self._all(values), most)
            case "bytes", begin, end:
                return bytes(self._blob[begin:end])
            case (("array" | "scalar"), dtype, shape, begin, end):
                found = np.frombuffer(self._blob[begin:end], _array_type(dtype)).reshape(shape).copy()
                return found if kind == "array" else found[()]
            case "path", text:
                return Path(text)
            case "enum", name, value:
                return _class(name, Enum)(self.get(value))
            case "record", name, values:
                return tuple.__new__(_class(name, tuple), self._all(values))
            case "model", name, state:
                model = object.__new__(_class(name, BaseModel))
                model.__setstate__(self.get(state))
                return model
            case "object", name, names, values:
                made = object.__new__(_class(name, object))
                vars(made).update(zip(names, self._all(values), strict=True))
                return made
        raise ValueError(f"unknown part {kind!r}")


def _array_type(text: str) -> np.dtype:
    found = np.dtype(text)
    if found.kind not in _ARRAYS:
        raise ValueError(f"an array of {found}")
    return found


def _name(cls: type) -> str:
    if not _is_ours(cls.__module__):
        raise TypeError(f"a {cls.__module__}.{cls.__qualname__} cannot be sent")
    return f"{cls.__module__}:{cls.__qualname__}"


def _class(name: str, base: type) -> Any:
    """Return one of Perseus's classes.

    Raises:
        ValueError: It is none, or not derived from ``base``.
    """
    module, _, qualified = name.partition(":")
    if not _is_ours(module):
        raise ValueError(f"{name} is no class of Perseus")
    found: Any = vars(importlib.import_module(module))[qualified]
    if not (isinstance(found, type) and found.__module__ == module and issubclass(found, base)):
        raise ValueError(f"{name} is no such class")
    return found


def _is_ours(module: str) -> bool:
    ours, _, rest = module.partition(".")
    return ours == "perseus_ds" and rest.partition(".")[0] in _PACKAGES
