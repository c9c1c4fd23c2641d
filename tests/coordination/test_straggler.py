"""Slow stages are noticed after a while, and only then; a profile that fits no more is told from stragglers."""

import numpy as np
import pytest

from perseus_ds.config import StragglerConfig
from perseus_ds.coordination.straggler import DriftWatch, StragglerTracker, stage_slowdown


def test_slowdown_is_the_median_ratio_so_one_hiccup_does_not_count():
    assert stage_slowdown([(1.3, 1.0), (1.3, 1.0), (9.0, 1.0)]) == pytest.approx(1.3)
    assert stage_slowdown([]) == 1.0
    assert stage_slowdown([(1.0, 0.0)]) == 1.0  # a clock that was never profiled says nothing


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
