"""Longest paths over a small DAG, there and back."""

import numpy as np

from perseus_ds.pipeline.csr import grouped
from perseus_ds.pipeline.paths import longest_from, longest_to, path_to

# 0 before 1 and 2, these before 3; 4 stands alone.
EDGES = np.array([(0, 1), (0, 2), (1, 3), (2, 3)])
TIMES_S = np.array([1.0, 5.0, 2.0, 4.0, 7.0])
ORDER = np.array([4, 0, 2, 1, 3])


def test_the_longest_path_to_a_node_leaves_its_own_time_out() -> None:
    predecessors = grouped(EDGES[:, 1], EDGES[:, 0], 5)

    assert longest_to(ORDER, predecessors, TIMES_S).tolist() == [0.0, 1.0, 1.0, 6.0, 0.0]


def test_the_longest_path_from_a_node_s_end_leaves_its_own_time_out_too() -> None:
    successors = grouped(EDGES[:, 0], EDGES[:, 1], 5)

    assert longest_from(ORDER, successors, TIMES_S).tolist() == [9.0, 4.0, 4.0, 0.0, 0.0]


def test_the_longest_path_to_a_node_begins_with_that_node() -> None:
    predecessors = grouped(EDGES[:, 1], EDGES[:, 0], 5)
    ends_s = longest_to(ORDER, predecessors, TIMES_S) + TIMES_S

    assert path_to(3, predecessors, ends_s).tolist() == [3, 1, 0]
    assert path_to(4, predecessors, ends_s).tolist() == [4]
