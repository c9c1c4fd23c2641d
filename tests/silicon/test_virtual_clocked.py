"""Instructions at the speed of the virtual GPU's clock."""

import pytest

from perseus_ds.pipeline.kinds import Kind


def test_work_runs_at_the_clock_that_was_set_and_the_log_says_when_it_was_there(virtual_lab):
    clocked = virtual_lab.clocked()
    begin_s = virtual_lab.now_s()
    clocked.set_mhz(1500)
    virtual_lab.sleep(1.0)
    stamps = [virtual_lab.stamp()]
    for kind in (Kind.FORWARD, Kind.BACKWARD):
        clocked.run(kind)
        stamps.append(virtual_lab.stamp())
    virtual_lab.synchronize()
    first_s, middle_s, last_s = virtual_lab.device_s(stamps)
    assert middle_s - first_s == pytest.approx(0.06 * 1980 / 1500, rel=0.02)
    assert last_s - middle_s == pytest.approx(0.06 * 1980 / 1500 + 0.06, rel=0.05)
    (asked,) = clocked.close()
    assert asked.mhz == 1500
    assert asked.at_s - begin_s == pytest.approx(clocked.latency_s(1500), rel=0.5)
