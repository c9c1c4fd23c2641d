"""Where a jittering clock is best asked to come, and how widely it jitters."""

import numpy as np
import pytest

from perseus_ds.frontier.aims import aim, spread
from perseus_ds.profiling.table import read_profile
from perseus_ds.runtime.simulation import profile_file

# Like an A40's at 1,740 and 960 MHz: the backward hardly gets slower.
FAST_S, SLOW_S = {"forward": 0.112, "backward": 0.277}, {"forward": 0.149, "backward": 0.305}


def test_clocks_change_within_the_instruction_whose_time_depends_on_it_less():
    after_the_forward = aim(FAST_S["forward"], SLOW_S["forward"], FAST_S["backward"], SLOW_S["backward"])
    after_the_backward = aim(SLOW_S["backward"], FAST_S["backward"], SLOW_S["forward"], FAST_S["forward"])
    assert 0.3 < after_the_forward < 0.8, "the backward begins at the forward's clock"
    assert -0.8 < after_the_backward < -0.3, "and ends at it"


@pytest.mark.parametrize("slower", [1.0, 1.03])
def test_where_both_depend_on_it_alike_it_comes_at_the_begin(slower):
    assert aim(0.1, 0.13, 0.2, 0.26 * slower) == 0.0
    assert aim(0.1, 0.1, 0.2, 0.2 * slower) == 0.0


@pytest.mark.parametrize(("before", "own"), [(0.3, 0.1), (0.05, 0.2), (0.25, 0.1), (0.4, 0.3)])
def test_no_other_place_changes_times_less(before, own):
    """By 0.5 %, on average over 100,000 normal deviations, of the changes by a late or an early clock."""
    late = np.random.default_rng(1).normal(0.0, 1.0, 100_000)

    def change(at: float) -> float:
        return float((own * np.maximum(at + late, 0.0) + before * np.maximum(-at - late, 0.0)).mean())

    found = aim(1.0, 1.0 - before, 1.0, 1.0 - own)
    assert change(found) <= 1.005 * min(change(at) for at in np.linspace(-2, 2, 81))


def test_an_instruction_that_a_clock_does_not_touch_takes_all_of_the_jitter_up_to_two_deviations():
    assert aim(1.0, 1.6, 0.2, 0.2) == 2.0
    assert aim(0.2, 0.2, 1.0, 1.6) == -2.0


def test_on_an_a100_forwards_and_backwards_depend_on_clocks_alike():
    profile = read_profile(profile_file("gpt3-175b-a100-sxm"))
    forward, backward = (
        {point.frequency_mhz: point.time_s for point in curve}
        for key, curve in profile.curves.items()
        if key.stage == 0
    )
    both = sorted(set(forward) & set(backward))
    assert not any(aim(forward[a], forward[b], backward[a], backward[b]) for a in both for b in both)


def test_jitter_is_in_proportion_to_the_latency():
    latency_s = {1400: 0.01, 1000: 0.02, 600: 0.04}
    assert [spread(latency_s, mhz) for mhz in (1400, 1000, 600)] == [0.5, 1.0, 2.0]
    assert spread(latency_s, 800) == 1.0, "nobody knows"
    assert spread({}, 1400) == 1.0
    assert spread({1400: 0.0, 1000: 0.02}, 1400) == 0.01, "moves divide by it"
