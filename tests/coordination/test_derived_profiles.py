"""Profiles that follow from a measured one, by hand."""

import numpy as np
import pytest

from perseus_ds.coordination.derived_profiles import scaled_profile, slowed_profile
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint

FIRST, SECOND = CurveKey(0, Kind.FORWARD), CurveKey(1, Kind.BACKWARD)
PROFILE = Profile(
    {FIRST: (ProfilePoint(1400, 1.0, 300.0), ProfilePoint(700, 1.5, 200.0)), SECOND: (ProfilePoint(1400, 2.0, 600.0),)},
    "made up",
)


def test_a_slow_stage_waits_within_its_instructions_at_blocking_power():
    slow = slowed_profile(PROFILE, np.array([1.2, 1.0]), np.array([50.0, 90.0]))
    assert slow.curve(FIRST)[0][:3] == pytest.approx((1400, 1.2, 300.0 + 50.0 * 0.2))
    assert slow.curve(FIRST)[1][:3] == pytest.approx((700, 1.8, 200.0 + 50.0 * 0.3))
    assert slow.curve(SECOND) == PROFILE.curve(SECOND)
    assert slow.source == "made up, slowed"


def test_more_work_takes_more_time_and_more_energy_alike():
    scaled = scaled_profile(PROFILE, np.array([1.0, 1.5]))
    assert scaled.curve(FIRST) == PROFILE.curve(FIRST)
    assert scaled.curve(SECOND) == (ProfilePoint(1400, 3.0, 900.0),)
    assert scaled.source == "made up, rescaled"


def test_below_a_ceiling_all_is_as_profiled_and_the_highest_clock_stands_for_it():
    rows = tuple(ProfilePoint(mhz, 1400 / mhz, 0.3 * mhz) for mhz in (1400, 1200, 1000, 800))
    profile = Profile({FIRST: rows, SECOND: rows}, "made up")
    held = slowed_profile(profile, np.array([-1100.0, 1.0]), np.array([50.0, 90.0]))
    assert held.curve(FIRST) == (ProfilePoint(1400, 1.4, 300.0), rows[3])
    assert held.curve(SECOND) == rows
    lowest = slowed_profile(profile, np.array([-700.0, 1.0]), np.array([50.0, 90.0]))
    assert lowest.curve(FIRST) == (rows[3]._replace(frequency_mhz=1400),)
