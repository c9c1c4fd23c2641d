"""An outcome passes if every limit holds, and says which do not."""

import math

from perseus_ds.silicon.outcome import Limit, judged, percentile


def test_one_limit_that_does_not_hold_is_enough_to_fail():
    assert judged("a", {"x": 1.0}, Limit(True, "x"), Limit(True, "y")).passed
    failed = judged("a", {"x": 1.0}, Limit(True, "x"), Limit(False, "y is too high"), Limit(False, "z"))
    assert (failed.passed, failed.why) == (False, "y is too high; z")
    assert failed.to_json() == {"name": "a", "passed": False, "figures": {"x": 1.0}, "why": "y is too high; z"}


def test_nothing_measured_is_within_no_limit():
    assert percentile([], 50) == math.inf
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0
