"""Waits cost what they cost at the clock that the GPU waits at."""

from dataclasses import replace

import pytest

from perseus_ds.frontier import Problem, evaluate
from perseus_ds.frontier.waiting import rest_clock_mhz, rests_until_s, waiting_beyond_j, with_waiting
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, ProfilePoint, make_profile

POINTS = [ProfilePoint(1400, 1.0, 400.0), ProfilePoint(1000, 1.25, 300.0)]
PROFILE = make_profile({CurveKey(stage, kind): POINTS for stage in (0, 1) for kind in (Kind.FORWARD, Kind.BACKWARD)})


def test_a_flat_waiting_power_adds_nothing() -> None:
    problem = Problem(schedule_dag("1f1b", 2, 2), PROFILE, 80.0)

    assert waiting_beyond_j(problem, evaluate(problem, [1400] * 8)) == 0.0


@pytest.mark.parametrize(("mhz", "per_mhz_s"), [(1400, 200.0), (1000, -200.0)])
def test_each_second_of_waiting_costs_by_its_clock(mhz: int, per_mhz_s: float) -> None:
    sloping = replace(PROFILE, waiting_slope_w_per_mhz=0.1, waiting_mhz=1200.0)
    problem = Problem(schedule_dag("1f1b", 2, 2), sloping, 80.0, gpus_per_stage=2)
    plan = evaluate(problem, [mhz] * 8)
    waited_s = 2 * plan.time_s - 8 * (1.0 if mhz == 1400 else 1.25)

    assert waiting_beyond_j(problem, plan) == pytest.approx(2 * 0.1 * per_mhz_s * waited_s)


def test_a_gpu_waits_at_the_clock_before_until_the_next_one_comes() -> None:
    sloping = replace(PROFILE, waiting_slope_w_per_mhz=0.1, waiting_mhz=1000.0)
    problem = Problem(schedule_dag("1f1b", 2, 1), sloping, 80.0)
    # The first stage waits between its instructions. The second one waits before its first and after its last.
    low = {
        kind: evaluate(
            problem, [1000 if (one.stage, one.kind) == (0, kind) else 1400 for one in problem.dag.instructions]
        )
        for kind in (Kind.FORWARD, Kind.BACKWARD)
    }

    assert waiting_beyond_j(problem, low[Kind.FORWARD]) == pytest.approx(0.1 * 400.0 * 2.25)
    assert waiting_beyond_j(problem, low[Kind.BACKWARD]) == pytest.approx(0.1 * 400.0 * (2.0 + 2.25))


def test_a_rest_pays_where_waiting_costs_less_at_the_lowest_clock() -> None:
    assert rest_clock_mhz(PROFILE, 1.0) == 0
    assert rest_clock_mhz(replace(PROFILE, waiting_slope_w_per_mhz=0.01), 1.0) == 0  # 4 W are not worth it
    assert rest_clock_mhz(replace(PROFILE, waiting_slope_w_per_mhz=0.1), 1.0) == 1000


def test_nobody_rests_where_the_tail_of_the_latencies_would_lengthen_iterations() -> None:
    late = replace(PROFILE, waiting_slope_w_per_mhz=0.1, switch_tail_share=0.1, switch_tail_s=0.05)

    # 5 ms on average, at a clock that is lower by two sevenths.
    assert rest_clock_mhz(late, 1.0) == 1000
    assert rest_clock_mhz(late, 0.5) == 0


def test_the_clock_after_a_rest_comes_well_ahead_and_a_short_wait_has_none() -> None:
    assert rests_until_s(1.0, 0.02) == pytest.approx(0.86)
    assert rests_until_s(0.08, 0.02) == 0.0
    assert rests_until_s(0.02, 1e-6) == 0.0, "nobody knows latencies that well"


def test_the_first_wait_of_a_stage_costs_less_where_it_rests() -> None:
    sloping = replace(PROFILE, waiting_slope_w_per_mhz=0.1, switch_latency_s={1400: 0.02, 1000: 0.03})
    problem = Problem(schedule_dag("1f1b", 2, 1), sloping, 80.0, gpus_per_stage=2)
    plan = evaluate(problem, [1400] * 4)  # the second stage waits 1 s for its forward
    saved_j = waiting_beyond_j(problem, plan) - waiting_beyond_j(problem, plan, 1000)

    assert saved_j == pytest.approx(2 * 0.1 * 400.0 * (0.9 - 2 * 0.03))
    assert with_waiting(problem, plan).energy_j - with_waiting(problem, plan, 1000).energy_j == pytest.approx(saved_j)
