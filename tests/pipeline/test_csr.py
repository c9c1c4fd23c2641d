"""Groups in two arrays."""

import numpy as np

from perseus_ds.pipeline.csr import grouped


def test_values_are_grouped_by_key_in_the_order_given() -> None:
    groups = grouped(np.array([2, 0, 2, 3, 0]), np.array([10, 11, 12, 13, 14]), 5)

    members = [groups.members[groups.indptr[g] : groups.indptr[g + 1]].tolist() for g in range(5)]
    assert members == [[11, 14], [], [10, 12], [13], []]


def test_nothing_is_grouped_into_empty_groups() -> None:
    nothing = np.empty(0, dtype=np.int64)

    assert grouped(nothing, nothing, 2).indptr.tolist() == [0, 0, 0]
