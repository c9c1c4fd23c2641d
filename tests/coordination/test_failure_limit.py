"""Which failures are survived."""

from perseus_ds.coordination.failure_limit import FailureLimit


def test_as_many_as_allowed_within_the_time_are_survived_and_old_ones_do_not_count():
    limit = FailureLimit(attempts=2, within_s=100.0)
    assert [limit.survives(at_s) for at_s in (0.0, 10.0, 20.0)] == [True, True, False]
    limit = FailureLimit(attempts=2, within_s=100.0)
    assert all(limit.survives(at_s) for at_s in (0.0, 60.0, 120.0, 180.0, 1e6))
    assert not FailureLimit(attempts=0, within_s=100.0).survives(0.0)
