"""Which clocks the iterations of a sweep run at."""

from collections import Counter
from itertools import pairwise

import pytest
from pipeline_truth import one_f_one_b

from perseus_ds.config import ProfilingConfig
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.sweep import Sweep
from perseus_ds.profiling.table import CurveKey, ProfilePoint

CLOCKS = tuple(range(1410, 854, -15))
FORWARD, BACKWARD = CurveKey(0, Kind.FORWARD), CurveKey(0, Kind.BACKWARD)
BLOCKING_W = 80.0


def order_of(stage: int, stages: int = 4, microbatches: int = 8) -> list[CurveKey]:
    return [CurveKey(stage, kind) for kind, _ in one_f_one_b(stage, stages, microbatches)]


def run(sweep: Sweep) -> list[tuple[int, ...]]:
    iterations = []
    while not sweep.done:
        iterations.append(sweep.next_frequencies())
    return iterations


def curve(clocks: tuple[int, ...], least_mhz: int, ci: float = 0.0) -> list[ProfilePoint]:
    """A curve whose effective energy is least at one clock; time goes with the clock's inverse."""
    times_s = [70.0 / mhz for mhz in clocks]
    return [
        ProfilePoint(mhz, t, 10.0 + ((mhz - least_mhz) / 100) ** 2 + BLOCKING_W * t, 0.0, ci)
        for mhz, t in zip(clocks, times_s, strict=True)
    ]


@pytest.mark.parametrize("stage", range(4))
def test_38_clocks_are_swept_within_40_iterations_of_8_microbatches(stage: int) -> None:
    sweep = Sweep(order_of(stage), CLOCKS, ProfilingConfig(), settle_s=0.010, instruction_s=0.05)

    iterations = run(sweep)

    assert len(iterations) <= 40
    settled = Counter()
    for clocks in iterations:
        for key, mhz, before in zip(order_of(stage), clocks, (0, *clocks), strict=False):
            settled[key, mhz] += mhz == before
    for key in {*order_of(stage)}:
        assert min(settled[key, mhz] for mhz in CLOCKS) >= 2


def test_stages_that_start_apart_run_at_different_clocks_and_visit_them_all() -> None:
    sweeps = [Sweep(order_of(0), CLOCKS, ProfilingConfig(), 0.010, 0.05, start=stage / 4) for stage in range(4)]

    iterations = [run(sweep) for sweep in sweeps]

    first = [mine[2][0] for mine in iterations]  # the two before it toggle
    assert first == [CLOCKS[int(stage / 4 * len(CLOCKS))] for stage in range(4)]
    for mine in iterations:
        assert {mhz for clocks in mine for mhz in clocks} == {*CLOCKS}


def toggled(sweep: Sweep) -> Sweep:
    """A sweep that has begun."""
    assert sweep.next_frequencies() == sweep.next_frequencies()
    return sweep


def test_it_begins_with_equal_iterations_that_toggle_between_two_neighbouring_clocks() -> None:
    sweep = Sweep(order_of(0), CLOCKS, ProfilingConfig())
    assert [sweep.next_frequencies() for _ in range(2)] == [(1125, 1140) * 8] * 2
    assert sweep.next_frequencies()[:2] == (1410, 1410)


@pytest.mark.parametrize("config", [ProfilingConfig(max_iterations=9), ProfilingConfig(mode="iteration")])
def test_a_sweep_without_time_to_spare_does_not_toggle(config: ProfilingConfig) -> None:
    assert Sweep(order_of(0), CLOCKS, config).next_frequencies()[:2] == (1410, 1410)


def test_it_goes_on_at_the_highest_clocks_and_changes_a_few_times_per_iteration() -> None:
    sweep = toggled(Sweep(order_of(0), CLOCKS, ProfilingConfig()))

    first, second = sweep.next_frequencies(), sweep.next_frequencies()

    assert list(dict.fromkeys(first)) == list(CLOCKS[: len(set(first))])
    assert 3 <= len(set(first)) <= 4
    assert max(second) < 1410
    assert len(first) == 16


def test_many_microbatches_need_few_iterations() -> None:
    sweep = Sweep(order_of(0, microbatches=128), CLOCKS, ProfilingConfig())

    assert len(run(sweep)) <= 6


def test_iteration_mode_runs_one_clock_per_iteration() -> None:
    sweep = Sweep(order_of(0), CLOCKS, ProfilingConfig(mode="iteration"))

    iterations = run(sweep)

    assert all(len(set(clocks)) == 1 for clocks in iterations)
    assert [clocks[0] for clocks in iterations] == list(CLOCKS)


def test_a_slow_switch_makes_blocks_longer_and_at_worst_one_per_iteration() -> None:
    def blocks(settle_s: float) -> int:
        sweep = toggled(Sweep(order_of(0), CLOCKS, ProfilingConfig(), settle_s=settle_s, instruction_s=0.05))
        clocks = sweep.next_frequencies()
        return 1 + sum(a != b for a, b in pairwise(clocks))

    assert [blocks(0.01), blocks(0.09), blocks(0.2), blocks(2.0)] == [4, 3, 2, 1]


def test_bounds_of_the_configuration_hold() -> None:
    every = tuple(range(1410, 209, -15))

    assert len(run(Sweep(order_of(0), every, ProfilingConfig(max_iterations=7)))) == 7
    assert min(Sweep(order_of(0), every, ProfilingConfig(max_instruction_slowdown=1.5)).clocks_mhz) == 945
    few = Sweep(order_of(0), every, ProfilingConfig(frequencies=10)).clocks_mhz
    assert len(few) == 10
    assert (few[0], few[-1]) == (1410, 705)


def test_five_increases_in_a_row_end_a_curve_of_its_own() -> None:
    sweep = Sweep(order_of(3), CLOCKS, ProfilingConfig())
    key_f, key_b = CurveKey(3, Kind.FORWARD), CurveKey(3, Kind.BACKWARD)
    sweep.observe({key_f: curve(CLOCKS[:20], 1290), key_b: curve(CLOCKS[:20], 1140)}, BLOCKING_W, {})

    visited = {mhz for clocks in run(sweep) for mhz in clocks}

    assert 1410 in visited
    assert 1140 in visited
    # The forward's curve ended at 1215; what lies below is visited for the backward's sake only.
    assert min(visited) < 1140


def test_when_all_curves_have_ended_nothing_below_is_visited() -> None:
    sweep = toggled(Sweep(order_of(0), CLOCKS, ProfilingConfig()))
    sweep.observe({key: curve(CLOCKS[:20], 1290) for key in (FORWARD, BACKWARD)}, BLOCKING_W, {})

    visited = {mhz for clocks in run(sweep) for mhz in clocks}

    assert min(visited) == 1290 - 5 * 15


def test_clocks_that_the_power_limit_does_not_let_hold_are_not_visited() -> None:
    """Whichever of them is asked for, the limit makes the same of it."""
    sweep = toggled(Sweep(order_of(0), CLOCKS, ProfilingConfig()))
    held = {key: curve([1410, *CLOCKS[CLOCKS.index(1290) :]], 600) for key in (FORWARD, BACKWARD)}
    sweep.observe(held, BLOCKING_W, dict.fromkeys(held, 1290))

    visited = {mhz for clocks in run(sweep) for mhz in clocks}

    assert {1410, 1290} <= visited
    assert not visited & set(range(1305, 1410))


def test_a_rise_within_the_noise_ends_nothing() -> None:
    sweep = Sweep(order_of(0), CLOCKS, ProfilingConfig())
    sweep.observe({key: curve(CLOCKS[:20], 1290, ci=5.0) for key in (FORWARD, BACKWARD)}, BLOCKING_W, {})

    assert min(mhz for clocks in run(sweep) for mhz in clocks) == CLOCKS[-1]


def test_known_precisely_enough_it_ends_early_and_unobserved_it_does_not() -> None:
    precise = Sweep(order_of(0), CLOCKS, ProfilingConfig())
    blind = Sweep(order_of(0), CLOCKS, ProfilingConfig())
    for _ in range(32):
        precise.next_frequencies()
        blind.next_frequencies()
    precise.observe({key: curve(CLOCKS, 855, ci=1e-3) for key in (FORWARD, BACKWARD)}, BLOCKING_W, {})

    assert precise.done
    assert not blind.done


def test_a_curve_ends_where_an_instruction_is_slowed_by_more_than_the_bound() -> None:
    def lowest_visited_mhz(slowdown: float) -> int:
        sweep = toggled(Sweep(order_of(0), CLOCKS, ProfilingConfig(max_instruction_slowdown=1.5)))
        points = [
            ProfilePoint(mhz, 0.1 if mhz > 1200 else 0.1 * slowdown, 50.0 + mhz / 100, 0.0, 5.0) for mhz in CLOCKS[:20]
        ]
        sweep.observe({FORWARD: points, BACKWARD: points}, BLOCKING_W, {})
        return min(mhz for clocks in run(sweep) for mhz in clocks)

    assert lowest_visited_mhz(slowdown=1.51) == 1215
    assert lowest_visited_mhz(slowdown=1.5) == 945, "the bound itself is allowed; no clock below is fast enough"


def test_precision_is_asked_for_down_to_the_least_effective_energy_only() -> None:
    def swept(ci_above: float, ci_below: float) -> Sweep:
        sweep = Sweep(order_of(0), CLOCKS, ProfilingConfig())
        for _ in range(36):
            sweep.next_frequencies()
        rough = [
            point._replace(energy_ci_j=(ci_above if point.frequency_mhz >= 1290 else ci_below) * point.energy_j)
            for point in curve(CLOCKS, 1290)
        ]
        sweep.observe({FORWARD: rough, BACKWARD: rough}, BLOCKING_W, {})
        return sweep

    assert swept(ci_above=0.014, ci_below=0.5).done
    assert not swept(ci_above=0.016, ci_below=0.0).done

    # With its least effective energy at the highest clock, that one point is all that must be precise.
    sweep = Sweep(order_of(0), CLOCKS, ProfilingConfig())
    for _ in range(36):
        sweep.next_frequencies()
    first, *others = curve(CLOCKS, 1410)
    falling = [first._replace(energy_ci_j=0.5 * first.energy_j), *others]
    sweep.observe({FORWARD: falling, BACKWARD: falling}, BLOCKING_W, {})
    assert not sweep.done


def test_ranks_that_observe_the_same_choose_the_same() -> None:
    ranks = [Sweep(order_of(1), CLOCKS, ProfilingConfig()) for _ in range(2)]
    for iteration in range(12):
        assert ranks[0].next_frequencies() == ranks[1].next_frequencies()
        if iteration == 6:
            for rank in ranks:
                rank.observe({CurveKey(1, Kind.FORWARD): curve(CLOCKS[:15], 1300)}, BLOCKING_W, {})
