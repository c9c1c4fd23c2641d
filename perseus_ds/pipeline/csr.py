"""Groups of numbers in two arrays (compressed sparse rows), for compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Csr", "grouped"]

IntArray = NDArray[np.int64]


class Csr(NamedTuple):
    """Group g's members are ``members[indptr[g]:indptr[g + 1]]``.

    Attributes:
        indptr: Shape (groups + 1,).
        members: Of all groups, one after the other.
    """

    indptr: IntArray
    members: IntArray


def grouped(keys: IntArray, values: IntArray, count: int) -> Csr:
    """Group values by key, in the order given.

    Args:
        keys: Group of each value, ``0 … count - 1``.
        values: As many.
        count: Number of groups.
    """
    indptr = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys, minlength=count), out=indptr[1:])
    return Csr(indptr, values[np.argsort(keys, kind="stable")])
