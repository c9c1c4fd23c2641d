"""What a GPU did, one column for each unknown power, each segment in two halves."""

import numpy as np
import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.spans import Between, Segment
from perseus_ds.profiling.table import CurveKey
from perseus_ds.profiling.work import work_of

FORWARD, BACKWARD = CurveKey(0, Kind.FORWARD), CurveKey(0, Kind.BACKWARD)
DID = [
    Segment(10.0, 12.0, FORWARD, 1400),
    Segment(12.0, 13.0, Between.WAITING, 1000),
    Segment(13.0, 17.0, BACKWARD, 1000),
    Segment(17.0, 18.0, Between.OTHER, 1000),
]


def test_every_half_draws_the_power_of_its_column() -> None:
    work = work_of(DID)
    assert work.columns.states == ((BACKWARD, 1000), (FORWARD, 1400))
    seconds = np.diff(work.edges_s) @ work.values
    # Before it began, the GPU has waited for a second; waiting at the mean clock of waits has no slope.
    assert seconds == pytest.approx([4.0, 2.0, 2.0, 0.0, 1.0])
    assert work.columns.waiting_mhz == 1000
    assert work.edges_s[:5] == pytest.approx([9.0, 10.0, 10.0, 11.0, 12.0])


def test_an_instruction_leans_to_its_first_half_by_as_much_as_from_its_second() -> None:
    work = work_of(DID)
    backward, forward = 0, 1
    assert np.diff(work.edges_s) @ work.leaning == pytest.approx([0.0, 0.0])
    assert np.diff(work.edges_s) @ np.abs(work.leaning) == pytest.approx([4.0, 2.0])
    assert [work.leaning[row, forward] for row in (2, 3)] == [1.0, -1.0]
    assert [work.leaning[row, backward] for row in (8, 9)] == [1.0, -1.0]


def test_segments_that_overlap_by_a_little_stay_in_order() -> None:
    work = work_of([DID[0], Segment(11.9, 13.0, BACKWARD, 1000)])
    assert (np.diff(work.edges_s) >= 0.0).all()
