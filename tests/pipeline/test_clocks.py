"""Which clock an instruction runs at."""

from perseus_ds.pipeline.clocks import UNLOCKED, IterationClocks

PLANNED = IterationClocks(1410, (1200, 900, 900))


def test_planned_instructions_have_clocks_of_their_own_and_the_others_a_common_one() -> None:
    assert [PLANNED.of(index) for index in (0, 1, 2)] == [1200, 900, 900]
    assert PLANNED.of(3) == 1200, "what follows is most likely the next iteration"
    assert [PLANNED.of(index) for index in (4, 9)] == [1410, 1410]


def test_without_a_plan_all_have_the_common_clock() -> None:
    assert [IterationClocks(1410).of(index) for index in (0, 1, 5)] == [1410] * 3


def test_what_is_not_locked_is_recorded_with_a_clock_and_requested_without_one() -> None:
    free = IterationClocks(1410, locked=False)
    assert [free.of(index) for index in (0, 1)] == [1410, 1410]
    assert [free.requested(index) for index in (0, 1)] == [UNLOCKED, UNLOCKED]
    assert [PLANNED.requested(index) for index in range(4)] == [PLANNED.of(index) for index in range(4)]


def test_changes_are_where_a_planned_clock_differs_from_the_one_before() -> None:
    assert PLANNED.changes == (1,)
    assert IterationClocks(1410, (1200, 1200, 900, 1200)).changes == (2, 3)
    assert IterationClocks(1410).changes == ()
    assert IterationClocks(1410, (1200, 900), locked=False).changes == ()


def test_switches_count_the_way_back_to_the_first_clock() -> None:
    assert PLANNED.switches == 2
    assert IterationClocks(1410, (1200,)).switches == 0
    assert IterationClocks(1410, (1200, 900, 1200)).switches == 2
    assert IterationClocks(1410).switches == 0


def test_clocks_come_at_the_begins_of_their_instructions_unless_planned_otherwise() -> None:
    aimed = IterationClocks(1410, (1200, 900, 900), aims_s=(0.0, 0.004, 0.0))
    assert [aimed.aim_s(index) for index in range(5)] == [0.0, 0.004, 0.0, 0.0, 0.0]
    assert [PLANNED.aim_s(index) for index in range(3)] == [0.0] * 3
