"""What plans save, by refreshed baselines."""

import numpy as np
import pytest

from perseus_ds.report.savings import SavingPoint, Savings


def taken(*savings: float) -> list[SavingPoint]:
    found = Savings()
    events = ({"event": "baseline", "iteration": 10 * n, "saving": one} for n, one in enumerate(savings))
    return [point for event in events if (point := found.take(event)) is not None]


def test_the_saving_over_time_is_that_of_the_latest_eight_refreshes_with_its_interval() -> None:
    savings = np.random.default_rng(1).normal(0.12, 0.02, 12)

    points = taken(*savings)

    assert [point.iteration for point in points] == list(range(0, 120, 10))
    assert [point.half_width is None for point in points[:4]] == [True, True, False, False]
    assert points[-1].saving == pytest.approx(savings[4:].mean())


def test_the_interval_of_a_few_refreshes_holds_the_truth_95_times_of_100() -> None:
    random = np.random.default_rng(5)
    last = [taken(*random.normal(0.12, 0.02, 5))[-1] for _ in range(400)]
    assert 0.92 < np.mean([abs(point.saving - 0.12) <= point.half_width for point in last]) < 0.98


@pytest.mark.parametrize(
    ("savings", "in_vain"),
    [
        ((-0.01, -0.02), False),  # too few
        ((-0.01, -0.012, -0.008), True),
        ((-0.01, 0.02, -0.02), False),  # nobody knows
        ((0.01, 0.012, 0.008), False),
    ],
)
def test_plans_are_in_vain_where_the_whole_interval_is_below_zero(savings: tuple[float, ...], in_vain: bool) -> None:
    assert taken(*savings)[-1].in_vain is in_vain


def test_what_counters_leave_in_doubt_is_told_of_the_mean() -> None:
    savings, refreshed = Savings(), {"event": "baseline", "iteration": 3, "saving": 0.2, "energy_j": 1000.0}
    for counted in (1, 2, 3):
        point = savings.take(refreshed | {"energy_sd_j": 5.0})
        assert point
        assert point.counter_sd == pytest.approx(0.8 * 0.005 / counted**0.5)


def test_other_plans_or_another_objective_save_anew() -> None:
    for event in ("plans", "objective"):
        savings = Savings()
        for _ in range(3):
            savings.take({"event": "baseline", "iteration": 1, "saving": 0.3})
        assert savings.take({"event": event, "iteration": 2}) is None
        assert savings.take({"event": "baseline", "iteration": 3, "saving": 0.1}) == SavingPoint(3, 0.1, None)
