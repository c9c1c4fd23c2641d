"""The heap of the path search."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.frontier.binary_heap import heap_pop, heap_push


@given(st.lists(st.one_of(st.none(), st.integers(-50, 50)), max_size=40))
def test_the_least_key_comes_out_first_with_its_node(steps: list[int | None]) -> None:
    heap, size, kept = np.empty((len(steps) + 1, 2), dtype=np.int64), 0, []
    for node, key in enumerate(steps):
        if key is not None:
            size = heap_push(heap, size, key, node)
            kept.append((key, node))
        elif kept:
            least = (int(heap[0, 0]), int(heap[0, 1]))
            assert least in kept
            assert least[0] == min(kept)[0]
            kept.remove(least)
            size = heap_pop(heap, size)
        assert size == len(kept)
    while kept:
        assert heap[0, 0] == min(kept)[0]
        kept.remove((int(heap[0, 0]), int(heap[0, 1])))
        size = heap_pop(heap, size)
