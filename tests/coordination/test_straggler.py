"""Slow stages are noticed after a while, and only then; a profile that fits no more is told from stragglers."""

from math import nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseus_ds.config import StragglerConfig
from perseus_ds.coordination.straggler import DriftWatch, StragglerTracker


@pytest.fixture
def tracker():
    return StragglerTracker(StragglerConfig(), pipelines=2, stages=2)


def slow(factor: float) -> np.ndarray:
    return np.array([[1.0, 1.0], [1.0, factor]])


def test_onset_takes_two_iterations_and_recovery_one(tracker):
    changes = [tracker.update(slow(factor)) for factor in (1.0, 1.3, 1.3, 1.3, 1.0)]
    assert changes == [False, False, True, False, True]
    assert (tracker.active == 1.0).all()
    assert tracker.lasted[1, 1] == 2


def test_a_blip_changes_nothing(tracker):
    assert not any(tracker.update(slow(factor)) for factor in (1.0, 2.0, 1.0, 2.0, 1.0))


def test_between_the_thresholds_all_stays_as_it_is(tracker):
    assert not any(tracker.update(slow(1.04)) for _ in range(10))
    assert [tracker.update(slow(factor)) for factor in (1.3, 1.3)] == [False, True]
    tracker.update(slow(1.04))  # eased, but not over
    assert tracker.active[1, 1] == 1.04
    assert not any(tracker.update(slow(1.04)) for _ in range(10))


def test_the_driver_saying_why_halves_the_patience(tracker):
    throttled = np.array([[False, False], [False, True]])
    assert tracker.update(slow(1.3), throttled)
    assert not tracker.update(np.array([[1.0, 1.3], [1.0, 1.3]]), throttled)


def test_noise_of_a_straggler_does_not_remake_its_plan_but_a_worse_condition_does(tracker):
    changes = [tracker.update(slow(factor)) for factor in (1.3, 1.3, 1.32, 1.28)]
    assert changes == [False, True, False, False]
    # It has been noticed once, so that now it takes twice the patience; the others are spared any hurry meanwhile.
    assert [tracker.update(slow(1.5)) for _ in range(4)] == [False, False, False, True]
    assert tracker.active[1, 1] == 1.5


def test_the_others_speed_up_at_once_when_it_eases(tracker):
    assert [tracker.update(slow(factor)) for factor in (1.5, 1.5, 1.2)] == [False, True, True]
    assert tracker.active[1, 1] == 1.2


def test_every_relapse_doubles_the_patience_until_it_has_been_calm(tracker):
    waits = []
    for _ in range(4):
        waits.append(next(count for count in range(1, 100) if tracker.update(slow(1.3))))
        tracker.update(slow(1.0))
    assert waits == [2, 4, 8, 16]
    for _ in range(100):
        tracker.update(slow(1.0))
    assert [tracker.update(slow(1.3)) for _ in range(2)] == [False, True]


def test_an_announcement_counts_at_once_for_the_whole_pipeline_until_taken_back(tracker):
    tracker.announce(0, 1.2)
    assert tracker.update(slow(1.0))
    assert tracker.active.tolist() == [[1.2, 1.2], [1.0, 1.0]]
    assert not tracker.update(slow(1.0))
    tracker.announce(0, 1.0)
    assert tracker.update(slow(1.0))
    assert (tracker.active == 1.0).all()


def test_an_announcement_for_a_pipeline_that_is_not_there_is_ignored(tracker):
    tracker.announce(7, 1.2)
    assert not tracker.update(slow(1.0))


def test_switched_off_it_notices_nothing():
    tracker = StragglerTracker(StragglerConfig(enabled=False), pipelines=1, stages=1)
    assert not any(tracker.update(np.array([[2.0]])) for _ in range(5))
    tracker.announce(0, 1.5)
    tracker.restart()
    assert tracker.active == 1.0


def noticed(seen, throttled: bool = False, **settings) -> list[float]:
    """What is acted on after each iteration of a job of one stage."""
    tracker = StragglerTracker(StragglerConfig(**settings), pipelines=1, stages=1)
    active = []
    for factor in seen:
        tracker.update(np.array([[factor]]), np.array([[throttled]]))
        active.append(float(tracker.active[0, 0]))
    return active


@pytest.mark.parametrize(
    ("seen", "settings", "active"),
    [
        pytest.param([1.0, 1.4], {"onset_iterations": 1}, [1.0, 1.4], id="at once, and as slow as it is"),
        pytest.param([1.15] * 3, {"threshold": 1.2}, [1.0] * 3, id="below the threshold"),
        pytest.param([1.2] * 2, {"threshold": 1.2}, [1.0, 1.2], id="at the threshold"),
        pytest.param([1.1, 1.5, 1.6], {"onset_iterations": 3}, [1.0, 1.0, 1.5], id="the less slow of the latest two"),
        pytest.param([1.6, 1.6, 1.3], {"onset_iterations": 3}, [1.0, 1.0, 1.3], id="the latest"),
        pytest.param([1.2999, 1.2999], {}, [1.0, 1.29], id="rounded down"),
        pytest.param([1.08] * 2, {}, [1.0, 1.08], id="eight per cent is no noise"),
        pytest.param([1.06, 1.07, 1.0, 1.07, 1.06, 1.0], {}, [1.0] * 6, id="six per cent may be"),
        pytest.param([1.06] * 4, {}, [1.0] * 3 + [1.06], id="a small slowdown takes more iterations"),
        pytest.param([1.05] * 6, {}, [1.0] * 5 + [1.05], id="a smaller one still more"),
        pytest.param([1.3, 1.3, 1.03, 1.029], {}, [1.0, 1.3, 1.03, 1.0], id="normal is below the other threshold"),
        pytest.param([1.3, 1.3, 1.02, 1.02], {"recovery_iterations": 3}, [1.0, 1.3, 1.02, 1.02], id="eased at once"),
        pytest.param([1.3, 1.3, 1.24, 1.23], {}, [1.0, 1.3, 1.3, 1.23], id="the same within five per cent"),
        pytest.param([1.3, nan, 1.0, 1.3], {}, [1.0] * 4, id="no news of a blip"),
        pytest.param([1.4, nan, nan, 1.3], {}, [1.0, 1.0, 1.0, 1.3], id="no news of a straggler, the less slow"),
        pytest.param([1.3, 1.3, nan, 1.0], {}, [1.0, 1.3, 1.3, 1.0], id="no news of its recovery"),
    ],
)
def test_what_is_noticed_and_how_slow_it_is_said_to_be(seen, settings, active):
    assert noticed(seen, **settings) == active


@pytest.mark.parametrize("onset", [1, 2, 5])
def test_a_driver_that_says_why_shortens_the_patience_and_makes_nobody_slow(onset):
    assert noticed([1.0] * 5, throttled=True, onset_iterations=onset) == [1.0] * 5
    assert noticed([1.3] * 5, throttled=True, onset_iterations=onset).index(1.3) == max(onset // 2, 1) - 1


def test_a_small_slowdown_that_the_driver_explains_is_no_noise():
    assert noticed([1.06], throttled=True) == [1.06]


def test_patience_grows_to_64_iterations_and_returns_after_so_many_calm_ones():
    tracker = StragglerTracker(StragglerConfig(calm_iterations=7), pipelines=1, stages=1)

    def waits() -> int:
        return next(count for count in range(1, 100) if tracker.update(np.array([[1.3]])))

    def calm(iterations: int) -> None:
        for _ in range(iterations):
            tracker.update(np.array([[1.0]]))

    relapses = []
    for _ in range(8):
        relapses.append(waits())
        calm(6)
    assert relapses == [2, 4, 8, 16, 32, 64, 64, 64]
    calm(1)
    assert waits() == 2


@pytest.mark.parametrize(
    ("slowdowns", "drift"),
    [
        ([[1.2, 1.0], [1.2, 1.0]], [1.2, 1.0]),  # the same stage on all pipelines
        ([[1.2, 1.2], [1.2, 1.5]], [1.2, 1.2]),  # with a straggler among them
        ([[0.8, 0.9], [0.8, 0.9]], [0.8, 0.9]),
        ([[1.1, 1.1]], [1.1, 1.1]),  # one pipeline: all its stages
        ([[1.2, 1.0], [1.0, 1.2]], None),  # two stragglers
        ([[0.8, 1.0], [1.0, 1.0]], None),
        ([[1.0, 1.3]], None),
    ],
)
def test_drift_is_what_all_pipelines_share(slowdowns, drift):
    watch = DriftWatch(StragglerConfig(drift_iterations=5))
    found = [watch.update(np.array(slowdowns)) for _ in range(5)]
    assert all(one is None for one in found[:-1])
    assert (found[-1] is None) if drift is None else (found[-1] == pytest.approx(drift))


def test_slowdowns_that_come_and_go_are_no_drift():
    watch = DriftWatch(StragglerConfig(drift_iterations=6))
    assert all(watch.update(np.full((2, 2), factor)) is None for factor in (1.0, 1.3, 1.0, 1.3, 1.1, 1.3, 1.0, 1.2))


@pytest.mark.parametrize(("factor", "drifts"), [(1.1, True), (1.09, False), (0.91, False), (0.90, True)])
def test_a_drift_is_beyond_the_threshold_either_way(factor, drifts):
    watch = DriftWatch(StragglerConfig(threshold=1.1, drift_iterations=3))
    assert [watch.update(np.full((2, 2), factor)) is not None for _ in range(6)] == [False, False, drifts] * 2


def test_one_stage_that_drifts_is_enough_and_a_restart_forgets_it():
    watch = DriftWatch(StragglerConfig(drift_iterations=3))
    stages = np.array([[1.0, 1.2], [1.0, 1.2]])
    watch.update(stages)
    watch.update(stages)
    watch.restart()
    assert [watch.update(stages) is not None for _ in range(3)] == [False, False, True]


def test_a_drift_may_waver_a_little():
    watch = DriftWatch(StragglerConfig(drift_iterations=20))
    factors = [1.2] * 9 + [1.24] * 9 + [1.2, 1.24]
    found = [watch.update(np.full((2, 1), factor)) for factor in factors]
    assert found[-1] == pytest.approx([1.22], abs=0.02)


def test_a_stage_without_news_drifts_as_before():
    watch = DriftWatch(StragglerConfig(drift_iterations=4))
    news = [[nan, 1.0], [1.2, 1.2], [nan, 1.2], [1.2, nan], [nan, 1.2]]
    found = [watch.update(np.array([one])) for one in news]
    assert found[:4] == [None] * 4
    assert found[4] == pytest.approx([1.2, 1.2])


def test_switched_off_there_is_no_drift():
    watch = DriftWatch(StragglerConfig(enabled=False, drift_iterations=2))
    assert [watch.update(np.full((2, 2), 1.5)) for _ in range(4)] == [None] * 4


def held(mhz: float) -> np.ndarray:
    return np.array([[0.0, 0.0], [0.0, mhz]])


def test_a_stage_that_is_held_at_a_clock_has_that_ceiling_until_it_recovers(tracker):
    for _ in range(2):
        tracker.update(slow(1.25), ceilings_mhz=held(1095))
    assert tracker.active.tolist() == [[1.0, 1.0], [1.0, -1095.0]]
    assert not tracker.update(slow(1.26), ceilings_mhz=held(1080)), "the same within noise"
    assert tracker.update(slow(1.1), ceilings_mhz=held(1275))
    assert tracker.active[1, 1] == -1275.0
    assert tracker.update(slow(1.0), ceilings_mhz=held(0))
    assert (tracker.active == 1.0).all()


def test_an_announced_slowdown_beyond_a_ceiling_counts_and_a_smaller_one_does_not(tracker):
    for _ in range(2):
        tracker.update(slow(1.25), ceilings_mhz=held(1095))
    for announced, expected in ((1.4, 1.4), (1.1, -1095.0)):
        tracker.announce(1, announced)
        tracker.update(slow(1.25), ceilings_mhz=held(1095))
        assert tracker.active[1, 1] == expected
    assert tracker.active[1, 0] == 1.1


def test_new_expectations_forget_a_ceiling(tracker):
    for _ in range(2):
        tracker.update(slow(1.25), ceilings_mhz=held(1095))
    tracker.restart()
    assert (tracker.active == 1.0).all()


@settings(max_examples=60)
@given(st.data())
def test_the_quick_way_for_usual_iterations_changes_no_decision(data):
    """Histories in which most iterations are usual, with announcements and restarts, against the whole way."""
    config = StragglerConfig(calm_iterations=6, drift_iterations=4)
    quick, whole = (StragglerTracker(config, pipelines=2, stages=2) for _ in range(2))
    whole._stays_normal = lambda: False
    drift, whole_drift = DriftWatch(config), DriftWatch(config)
    factors = st.sampled_from([1.0, 1.0, 1.01, 1.04, 1.06, 1.3, 0.9])
    for _ in range(data.draw(st.integers(1, 25))):
        seen = np.array(data.draw(st.lists(factors, min_size=4, max_size=4))).reshape(2, 2)
        seen = np.broadcast_to(seen[0], (2, 2)) if data.draw(st.booleans()) else seen
        throttled = np.full((2, 2), data.draw(st.booleans()))
        match data.draw(st.sampled_from(["", "", "", "", "announce", "restart"])):
            case "announce":
                announced = data.draw(st.sampled_from([1.0, 1.2]))
                quick.announce(0, announced)
                whole.announce(0, announced)
            case "restart":
                quick.restart()
                whole.restart()
        whole_drift._far.extend([True] * 4)
        assert quick.update(seen, throttled) == whole.update(seen, throttled)
        assert np.array_equal(quick.active, whole.active)
        assert np.array_equal(quick.lasted, whole.lasted)
        assert str(drift.update(seen)) == str(whole_drift.update(seen))
