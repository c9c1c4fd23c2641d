"""GPUs of one model sharpen each other's power curves, and keep what is their own."""

import numpy as np
import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.energy import Attribution
from perseus_ds.profiling.pooling import deviation_covariance, pool
from perseus_ds.profiling.priors import unit_clocks
from perseus_ds.profiling.regression import CONFIDENCE, regress
from perseus_ds.profiling.table import CurveKey, ProfilePoint
from perseus_ds.profiling.window import FULL_PERIOD

States = tuple[tuple[CurveKey, int], ...]
CLOCKS = tuple(range(900, 1411, 30))
WAITING_W, OTHER_W = 80.0, 150.0


def power_w(kind: Kind, mhz: int) -> float:
    """A curve that is no parabola, and not alike for the two kinds."""
    x = (mhz - 900) / 510
    bump = 25.0 * np.exp(-((x - 0.6) ** 2) / 0.02)
    return 230.0 + 150.0 * x**2 + bump if kind is Kind.FORWARD else 260.0 + 170.0 * x**2 + bump


def gpu(
    stage: int,
    increments: int,
    noise: float,
    level: dict[Kind, float] | float = 1.0,
    waiting_w: float = WAITING_W,
    clocks: tuple[int, ...] = CLOCKS,
) -> tuple[Attribution, np.ndarray]:
    """What one GPU's counter told, and the true powers: of its states, of waiting, of other work."""
    rng = np.random.default_rng((stage, increments))
    keys = [CurveKey(stage, kind) for kind in (Kind.BACKWARD, Kind.FORWARD)]
    states = tuple((key, mhz) for key in keys for mhz in clocks)
    levels = level if isinstance(level, dict) else dict.fromkeys(Kind, level)
    truth = np.array([levels[key.kind] * power_w(key.kind, mhz) for key, mhz in states] + [waiting_w, OTHER_W])
    exposure = np.zeros((increments, len(truth)))
    for row in exposure:
        row[rng.integers(0, len(states), 2)] += rng.uniform(0.02, 0.08, 2)
        row[-2:] += rng.uniform(0.0, 0.02, 2)
    energies_j = exposure @ truth * (1 + noise * rng.normal(size=increments))
    return attributed(states, exposure, energies_j), truth


def attributed(states: States, exposure: np.ndarray, energies_j: np.ndarray) -> Attribution:
    """What is told by energies of known shares of states, of waiting, and of other work."""
    keys, clocks = sorted({key for key, _ in states}), sorted({mhz for _, mhz in states})
    curves = [np.arange(len(clocks)), np.arange(len(clocks), 2 * len(clocks))]
    scaled = np.append(unit_clocks([mhz for _, mhz in states]), [0.0, 0.0])
    fit, evidence = regress(exposure, energies_j, curves, scaled)
    points = {key: tuple(ProfilePoint(mhz, 0.05, 0.0) for mhz in reversed(clocks)) for key in keys}
    return Attribution(points, {}, 0.1, FULL_PERIOD, states, fit, evidence).with_power(fit)


def rms(attribution: Attribution, truth: np.ndarray) -> float:
    states = len(attribution.states)
    return float(np.sqrt(np.mean((attribution.power.values[:states] / truth[:states] - 1.0) ** 2)))


def test_a_gpu_that_has_told_little_takes_its_shape_from_one_that_has_told_much() -> None:
    (much, _), (little, truth) = gpu(0, 900, noise=0.001), gpu(1, 90, noise=0.05)

    _, pooled = pool([much, little])

    assert rms(little, truth) > 0.015
    assert rms(pooled, truth) < 0.006
    assert pooled.power.sd[:-2].mean() < 0.6 * little.power.sd[:-2].mean()
    inside = np.abs(pooled.power.values - truth) <= CONFIDENCE * pooled.power.sd
    assert inside.mean() >= 0.85


@pytest.mark.parametrize("waves", [2, 3])
def test_wrong_times_of_what_ran_bend_no_curves_against_each_other(waves: int) -> None:
    """Forwards and backwards alternate: only how their shares vary tells them apart.

    Waves as large as slopes and bends left 7.8 %.
    """
    clocks = range(900, 1500, 15)
    x = unit_clocks(clocks)
    truth = np.append(np.repeat([340.0, 300.0], 40) + np.tile(150 * x + 150 * x**2, 2), [WAITING_W, OTHER_W])
    gpus = []
    for stage in range(2):
        rng = np.random.default_rng(stage)
        states = tuple((CurveKey(stage, kind), mhz) for kind in (Kind.BACKWARD, Kind.FORWARD) for mhz in clocks)
        row, at, varies = np.arange(600), np.repeat(np.arange(40), 15), rng.normal(size=600)
        exposure = np.zeros((600, len(truth)))
        exposure[row, at], exposure[row, 40 + at] = 0.067 - 0.005 * varies, 0.033 + 0.005 * varies
        exposure[:, -2:] = rng.uniform(0.0, 0.002, (600, 2))
        wrong = 0.01 * np.sin(2 * np.pi * waves * x[at]) * varies
        gpus.append(attributed(states, exposure, exposure @ truth * (1 + 0.01 * rng.normal(size=600) + wrong)))

    for pooled in pool(gpus):
        assert rms(pooled, truth) < 0.045


def test_levels_of_a_gpu_and_of_each_of_its_curves_are_its_own() -> None:
    normal = [gpu(stage, 400, noise=0.01)[0] for stage in range(3)]
    hot, truth = gpu(3, 400, noise=0.01, level={Kind.FORWARD: 1.1, Kind.BACKWARD: 1.3})

    *others, pooled = pool([*normal, hot])

    assert rms(pooled, truth) < 0.008
    relative = pooled.power.values / truth - 1.0
    clocks = len(CLOCKS)
    assert relative[:clocks].mean() == pytest.approx(0.0, abs=0.003)
    assert relative[clocks : 2 * clocks].mean() == pytest.approx(0.0, abs=0.003)
    for stage, one in enumerate(others):
        assert rms(one, gpu(stage, 400, noise=0.01)[1]) < 0.006


def test_waiting_and_other_work_are_not_expected_to_be_alike() -> None:
    (one, _), (other, truth) = gpu(0, 400, 0.01), gpu(1, 400, 0.01, waiting_w=40.0)

    first, second = pool([one, other])

    assert first.blocking_power_w == pytest.approx(WAITING_W, rel=0.1)
    assert second.blocking_power_w == pytest.approx(40.0, rel=0.2)
    assert second.power.values[-1] == pytest.approx(truth[-1], rel=0.1)
    assert second.blocking_power_w == pytest.approx(other.blocking_power_w, rel=0.05)


def test_gpus_that_saw_other_clocks_share_those_that_both_saw() -> None:
    (low, low_truth), (high, high_truth) = gpu(0, 400, 0.01, clocks=CLOCKS[:12]), gpu(1, 400, 0.01, clocks=CLOCKS[5:])

    pooled = pool([low, high])

    for one, alone, truth in zip(pooled, (low, high), (low_truth, high_truth), strict=True):
        assert one.states == alone.states
        assert rms(one, truth) < 1.1 * rms(alone, truth)
        assert rms(one, truth) < 0.006


def test_energies_and_intervals_follow_from_the_pooled_powers() -> None:
    one, other = pool([gpu(0, 200, 0.02)[0], gpu(1, 200, 0.02)[0]])

    for attribution in (one, other):
        column = {state: index for index, state in enumerate(attribution.states)}
        for key, points in attribution.curves.items():
            for point in points:
                at = column[key, point.frequency_mhz]
                assert point.energy_j == pytest.approx(0.05 * attribution.power.values[at])
                assert point.energy_ci_j == pytest.approx(0.05 * CONFIDENCE * attribution.power.sd[at])


def test_deviations_go_together_by_gpu_by_curve_and_by_clock() -> None:
    clock = np.array([0.0, 0.4, 0.0])
    gpu_, level, smooth, free = 0.5, 0.1, 0.02, 0.003

    covariance = deviation_covariance([np.array([0, 1]), np.array([2])], clock, gpu_, level, smooth, free)

    near = (1 + np.sqrt(5) + 5 / 3) * np.exp(-np.sqrt(5))  # Matern 5/2, a correlation length of 0.4 away
    assert covariance[0, 2] == pytest.approx(gpu_**2), "of another curve"
    assert covariance[0, 1] == pytest.approx(gpu_**2 + level**2 + smooth**2 * near), "of the same curve"
    assert covariance[0, 0] == covariance[2, 2] == pytest.approx(gpu_**2 + level**2 + smooth**2 + free**2)


def test_one_gpu_alone_stays_as_it_is() -> None:
    alone, _ = gpu(0, 200, 0.02)

    assert pool([alone]) == [alone]
    assert pool([]) == []
