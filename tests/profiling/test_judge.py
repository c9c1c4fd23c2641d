"""A wrong model of the counter shows in the residuals, noise does not."""

import numpy as np
import pytest

from perseus_ds.profiling.judge import judge

ALL = np.ones(600, dtype=bool)


def power(rng: np.random.Generator, count: int = 600) -> np.ndarray:
    """Energy of each period of a GPU that changes its power now and then."""
    levels = np.repeat(rng.choice([10.0, 25.0, 40.0], count // 3), 3)
    return levels + 0.1 * rng.normal(size=len(levels))


def moved(expected_j: np.ndarray, shift: float) -> np.ndarray:
    """What a window sees that lies ``shift`` periods earlier."""
    return np.interp(np.arange(len(expected_j)) - shift, np.arange(len(expected_j)), expected_j)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise", [0.003, 0.01, 0.03])
def test_noise_is_believed(seed: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    expected_j = power(rng)

    verdict = judge(expected_j, expected_j * (1 + noise * rng.normal(size=600)), lambda s: moved(expected_j, s), ALL)

    assert verdict.explained
    assert verdict.outside < 0.01


@pytest.mark.parametrize("seed", range(3))
def test_a_window_in_the_wrong_place_is_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    expected_j = power(rng)
    measured_j = (0.8 * expected_j + 0.2 * moved(expected_j, 1.0)) * (1 + 0.01 * rng.normal(size=600))

    verdict = judge(expected_j, measured_j, lambda shift: moved(expected_j, shift), ALL)

    assert not verdict.explained
    assert verdict.followed > 20


def test_a_window_that_differs_from_update_to_update_is_not() -> None:
    rng = np.random.default_rng(0)
    expected_j = power(rng)
    late = rng.uniform(-0.4, 0.4, 600)
    measured_j = np.interp(np.arange(600) - late, np.arange(600), expected_j) * (1 + 0.003 * rng.normal(size=600))

    assert not judge(expected_j, measured_j, lambda shift: moved(expected_j, shift), ALL).explained


def test_only_what_saw_no_power_limit_hold_counts_as_far_from_what_was_expected() -> None:
    """Each tenth increment is a quarter too high, where a GPU goes above its limit for a moment."""
    rng = np.random.default_rng(0)
    expected_j = power(rng)
    held = np.arange(600) % 10 == 0
    measured_j = expected_j * (1 + 0.01 * rng.normal(size=600) + 0.25 * held)

    def judged(free: np.ndarray) -> bool:
        return judge(expected_j, measured_j, lambda shift: moved(expected_j, shift), free).explained

    assert judged(~held)
    assert not judged(ALL)
    assert not judged(~ALL), "where the limit nearly always holds, all count"
