"""A binary heap of (key, node) rows in an array, for compiled code."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["heap_pop", "heap_push"]

IntArray = NDArray[np.int64]


@njit(cache=True, nogil=True)
def heap_push(heap: IntArray, size: int, key: int, node: int) -> int:
    """Put (key, node) into a heap; return its new size.

    Args:
        heap: Shape (at least ``size + 1``, 2).
        size: Entries in the heap.
        key: Sort key.
        node: Its node.
    """
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if heap[above, 0] <= key:
            break
        heap[at, 0], heap[at, 1] = heap[above, 0], heap[above, 1]
        at = above
    heap[at, 0], heap[at, 1] = key, node
    return size + 1


@njit(cache=True, nogil=True)
def heap_pop(heap: IntArray, size: int) -> int:
    """Remove the least entry, row 0, from a heap; return its new size."""
    size -= 1
    key, node = heap[size, 0], heap[size, 1]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1, 0] < heap[child, 0]:
            child += 1
        if heap[child, 0] >= key:
            break
        heap[at, 0], heap[at, 1] = heap[child, 0], heap[child, 1]
        at = child
    heap[at, 0], heap[at, 1] = key, node
    return size
