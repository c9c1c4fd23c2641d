"""The real timer in virtual time."""

import pytest

from perseus_ds.silicon.lab import Load

IDEAL = {"power_limit_window_s": 0.0, "leakage_per_k": 0.0}


def test_a_follower_is_told_soon_after_and_with_the_devices_time(make_lab):
    lab, told = make_lab(**IDEAL), []
    timer, begin_s = lab.timer(), lab.now_s()
    for _ in range(3):
        lab.work(Load.GENTLE, 0.1)
        timer.when_reached(timer.mark(), lambda at_s: told.append((at_s - begin_s, lab.now_s() - begin_s)))
    lab.synchronize()
    assert [seen for _, seen in told] == pytest.approx([0.1, 0.2, 0.3], abs=5e-5)
    assert [at for at, _ in told] == pytest.approx([0.1, 0.2, 0.3], abs=5e-5)
