"""What a GPU did, one column for each unknown power, each segment in two halves."""

import numpy as np
import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.achieved import Limited
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


def unlimited(did: list[Segment]) -> Limited:
    return Limited(did, {}, [0.0] * len(did))


def test_every_half_draws_the_power_of_its_column() -> None:
    work = work_of(unlimited(DID))
    assert work.columns.states == ((BACKWARD, 1000), (FORWARD, 1400))
    seconds = np.diff(work.edges_s) @ work.values
    # Before it began, the GPU has waited for a second; waiting at the mean clock of waits has no slope.
    assert seconds == pytest.approx([4.0, 2.0, 2.0, 0.0, 1.0])
    assert work.columns.waiting_mhz == 1000
    assert work.edges_s[:5] == pytest.approx([9.0, 10.0, 10.0, 11.0, 12.0])


def test_what_something_beside_it_slows_down_draws_its_usual_energy_and_waits_for_the_rest() -> None:
    slowed = Segment(18.0, 20.0, BACKWARD, 1000, slowed=1.25)

    more = work_of(unlimited([*DID, slowed]))

    assert np.diff(more.edges_s) @ more.values == pytest.approx([4.0 + 1.6, 2.0, 2.0 + 0.4, 0.0, 1.0])


def test_other_work_follows_the_clock_as_waiting_does() -> None:
    work = work_of(unlimited([*DID, Segment(18.0, 20.0, Between.OTHER, 1400)]))

    assert np.diff(work.edges_s) @ work.values == pytest.approx([4.0, 2.0, 2.0, 2.0, 3.0])


def test_an_instruction_leans_to_its_first_half_by_as_much_as_from_its_second() -> None:
    work = work_of(unlimited(DID))
    backward, forward = 0, 1
    assert np.diff(work.edges_s) @ work.leaning == pytest.approx([0.0, 0.0])
    assert np.diff(work.edges_s) @ np.abs(work.leaning) == pytest.approx([4.0, 2.0])
    assert [work.leaning[row, forward] for row in (2, 3)] == [1.0, -1.0]
    assert [work.leaning[row, backward] for row in (8, 9)] == [1.0, -1.0]


LIMITED = [
    Segment(10.0, 12.0, FORWARD, 1400),
    Segment(12.0, 14.0, BACKWARD, 1400),
    Segment(14.0, 15.0, Between.WAITING, 1400),
    Segment(15.0, 17.0, BACKWARD, 1400),
    Segment(17.0, 19.0, BACKWARD, 1000),
    Segment(19.0, 21.0, BACKWARD, 1200),
]


HELD = Limited(
    LIMITED, {BACKWARD: 1000}, [0.0, 0.0, 0.0, 0.1, 0.0, 0.05], {BACKWARD: 0.005}, {BACKWARD: {1000: -0.02, 800: -0.2}}
)


def test_above_the_clock_that_can_be_held_states_are_a_plateau() -> None:
    columns = work_of(HELD).columns
    assert columns.states == ((BACKWARD, 1000), (BACKWARD, 1200), (BACKWARD, 1400), (FORWARD, 1400))
    assert [members.tolist() for members in columns.curves] == [[0], [3]]
    assert [members.tolist() for members in columns.plateaus] == [[1, 2]]
    assert work_of(unlimited(LIMITED)).columns.plateaus == []


def test_where_nothing_ran_at_a_clock_that_can_be_held_plateaus_are_the_curves() -> None:
    columns = work_of(Limited(LIMITED[1:2], {BACKWARD: 1000}, [0.0])).columns
    assert [members.tolist() for members in columns.curves] == [[0]]
    assert (columns.plateaus, len(columns.clock)) == ([], 4)


def test_at_the_limit_an_instruction_after_a_rest_begins_above_its_like() -> None:
    work = work_of(HELD)
    surge = len(work.columns.states) + 3
    halves = (np.diff(work.edges_s) * work.values[:, surge])[1:].reshape(-1, 3)[:, 1:]
    # Two backwards at 1,400 MHz: the second has rested. The others are not limited, or have not.
    assert halves == pytest.approx(
        np.array([[0, 0], [-0.0025, -0.0025], [0, 0], [0.0075, -0.0025], [0, 0], [0, 0]]), abs=1e-6
    )


def drawn(column: int) -> np.ndarray:
    """Return what each segment draws of a power, in J for each W of it."""
    work = work_of(HELD)
    return (np.diff(work.edges_s) * work.values[:, column])[1:].reshape(-1, 3).sum(axis=1)


def test_a_plateau_follows_how_fast_an_instruction_was() -> None:
    columns = work_of(HELD).columns
    line, bend = len(columns.states) + 4, len(columns.states) + 5
    in_line = [0.0, 0.0, 0.0, 2.0 * 0.1, 0.0, 2.0 * 0.05]
    assert drawn(line) == pytest.approx(in_line)
    backward, forward = columns.own
    assert drawn(backward) == pytest.approx(in_line)
    assert not drawn(forward).any()
    # On average over the whole iterations that a plateau's power is of there is no bend.
    assert drawn(bend) == pytest.approx([0.0, 0.0, 0.0, 2.0 * (0.01 - 0.005), 0.0, 2.0 * (0.0025 - 0.005)])


def test_at_the_limit_an_instruction_draws_what_it_does_at_a_clock_that_makes_it_as_fast() -> None:
    columns = work_of(HELD).columns
    line, bend, own = len(columns.states) + 4, len(columns.states) + 5, columns.own[0]
    (alike,) = columns.alike  # nothing ran at 800 MHz
    held, highest = columns.states.index((BACKWARD, 1000)), columns.states.index((BACKWARD, 1400))
    assert alike == pytest.approx({highest: 1.0, held: -1.0, line: -0.02, own: -0.02, bend: 0.0004 - 0.005})
    assert not work_of(unlimited(LIMITED)).columns.alike


def test_segments_that_overlap_by_a_little_stay_in_order() -> None:
    work = work_of(unlimited([DID[0], Segment(11.9, 13.0, BACKWARD, 1000)]))
    assert (np.diff(work.edges_s) >= 0.0).all()
