"""Whether a stage is slower by a factor, or held at a clock; from one iteration's times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.coordination.stage_condition import Health, Timed, ceiling_mhz, health, time_up_to_s
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey

FORWARD, BACKWARD = CurveKey(0, Kind.FORWARD), CurveKey(0, Kind.BACKWARD)
CLOCKS_MHZ = tuple(range(1410, 690, -15))
EXPECTED_S = {
    (key, mhz): work * (0.2 + 0.8 * 1410 / mhz)
    for key, work in ((FORWARD, 0.05), (BACKWARD, 0.1))
    for mhz in CLOCKS_MHZ
}
PLAN = ((FORWARD, 1410), (FORWARD, 900), (FORWARD, 900), (BACKWARD, 1410), (BACKWARD, 1200), (BACKWARD, 900))


def ran(factor: float = 1.0, held_mhz: int = 1410, plan=PLAN) -> list[Timed]:
    """The plan's instructions on a GPU that is slower, or held at a clock."""
    return [Timed(key, mhz, factor * EXPECTED_S[key, min(mhz, held_mhz)]) for key, mhz in plan]


def test_slowdown_is_the_median_ratio_so_one_hiccup_does_not_count():
    assert health([*ran(1.3)[:5], Timed(FORWARD, 1410, 9.0)], EXPECTED_S, 0).slowdown == pytest.approx(1.3)
    assert health([], EXPECTED_S, 0) == Health(1.0, 0)
    assert health([Timed(FORWARD, 77, 9.0)], EXPECTED_S, 0) == Health(1.0, 0), (
        "a clock that was never profiled says nothing"
    )


@pytest.mark.parametrize(("factor", "told"), [(0.7, 1.0), (1.3, 1.0), (1.6, 1.6)])
def test_what_differing_micro_batches_do_by_chance_is_no_slowdown(factor, told):
    assert health(ran(factor), EXPECTED_S, 0, spread=0.2).slowdown == pytest.approx(told)
    assert health(ran(factor), EXPECTED_S, 0).slowdown == pytest.approx(factor)


def test_a_ceiling_is_told_from_a_factor_by_the_instructions_below_it():
    found = health(ran(held_mhz=1080), EXPECTED_S, held_mhz=1080)
    assert found.ceiling_mhz == 1080
    assert found.slowdown == pytest.approx(0.2 + 0.8 * 1410 / 1080), "of the shortest possible time"
    # Half of the instructions run below the ceiling: the median ratio hides how slow the stage is at best.
    assert health(ran(held_mhz=1080), EXPECTED_S, held_mhz=0).slowdown < 1.05
    assert health(ran(1.5), EXPECTED_S, held_mhz=1080) == (pytest.approx(1.5), 0)


def test_a_ceiling_above_all_that_is_planned_slows_nothing():
    assert health(ran(plan=[(FORWARD, 900), (BACKWARD, 900)]), EXPECTED_S, held_mhz=1080) == Health(1.0, 0)


def test_a_ceiling_seen_earlier_is_over_when_the_times_say_so():
    assert health(ran(), EXPECTED_S, held_mhz=1080) == Health(1.0, 0)


def test_a_gpu_at_its_power_limit_is_as_it_should_be_down_to_the_clock_that_it_holds():
    high = ((FORWARD, 1410), (FORWARD, 1350), (BACKWARD, 1410), (BACKWARD, 1350), (BACKWARD, 900))
    capped = ran(held_mhz=1200, plan=high)
    assert health(capped, EXPECTED_S, held_mhz=0).slowdown > 1.05, "so it is told from a slow one by the limit alone"
    assert health(capped, EXPECTED_S, held_mhz=0, capped_mhz=1200) == Health(1.0, 0)
    assert health(ran(), EXPECTED_S, held_mhz=0, capped_mhz=1200) == Health(1.0, 0)
    slow = health(ran(1.3, held_mhz=1200, plan=high), EXPECTED_S, held_mhz=0, capped_mhz=1200)
    assert slow == (pytest.approx(1.3), 0)
    assert health(ran(0.9), EXPECTED_S, held_mhz=0, capped_mhz=1200).slowdown == pytest.approx(0.9)


def test_a_gpu_that_the_power_limit_holds_below_all_profiled_clocks_is_as_it_should_be():
    high = {place: time_s for place, time_s in EXPECTED_S.items() if place[1] >= 1350}
    plan = ((FORWARD, 1410), (FORWARD, 1350), (BACKWARD, 1410), (BACKWARD, 1350))
    capped = ran(held_mhz=1200, plan=plan)
    assert health(capped, high, held_mhz=0).slowdown > 1.1
    assert health(capped, high, held_mhz=0, capped_mhz=1200) == Health(1.0, 0)
    assert health(ran(1.3, held_mhz=1200, plan=plan), high, held_mhz=0, capped_mhz=1200).slowdown > 1.25


@given(st.sampled_from([mhz for mhz in CLOCKS_MHZ if mhz <= 1350]), st.floats(0.99, 1.01))
def test_every_ceiling_that_matters_is_found_in_noisy_times(held_mhz, noise):
    found = health(ran(noise, held_mhz), EXPECTED_S, held_mhz)
    assert found.ceiling_mhz in (held_mhz, 0)
    if held_mhz <= 1300:
        assert found.ceiling_mhz == held_mhz
        assert found.slowdown == pytest.approx(0.2 + 0.8 * 1410 / held_mhz)


def test_the_time_at_a_ceiling_between_profiled_clocks_is_that_of_the_next_lower_one():
    assert time_up_to_s(EXPECTED_S, FORWARD, 1087.0) == EXPECTED_S[FORWARD, 1080]
    assert time_up_to_s(EXPECTED_S, FORWARD, 100.0) == EXPECTED_S[FORWARD, CLOCKS_MHZ[-1]]


def test_a_condition_is_a_factor_or_minus_a_ceiling():
    assert [ceiling_mhz(one) for one in (1.0, 1.3, -1200.0)] == [None, None, 1200]
