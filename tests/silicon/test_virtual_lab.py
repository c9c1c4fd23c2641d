"""The virtual lab: things happen in order of virtual time, whatever the machine does."""

import pytest

from perseus_ds.silicon.lab import Host, Load

IDEAL = {"power_limit_window_s": 0.0, "leakage_per_k": 0.0, "power_window_s": 0.0, "noise": 0.0}


def test_the_device_works_behind_the_hosts_back(make_lab):
    lab = make_lab(**IDEAL)
    first, begin_s = lab.event(), lab.now_s()
    first.record()
    lab.work(Load.MATRIX, 0.5)
    last = lab.event()
    last.record()
    assert lab.now_s() == begin_s
    assert not last.query()
    lab.wait(last, Host.COMPUTES)
    assert last.query()
    assert lab.now_s() - begin_s == pytest.approx(0.5, abs=1e-6)
    assert first.elapsed_time(last) == pytest.approx(500.0)


def test_more_work_than_the_stream_holds_holds_the_host(make_lab):
    lab = make_lab(**IDEAL)
    begin_s = lab.now_s()
    for _ in range(1500):
        lab.work(Load.SPIN, 0.01)
    assert 2.0 < lab.now_s() - begin_s < 12.0
    lab.synchronize()
    assert lab.now_s() - begin_s == pytest.approx(15.0, abs=0.01)


def test_a_watch_reads_beside_the_work(make_lab):
    lab = make_lab(query_s=0.0, **IDEAL)
    watch = lab.watch(("power_w",))
    lab.sleep(0.1)
    lab.work(Load.GENTLE, 0.2)
    lab.synchronize()
    powers_w = [values[0] for _, values in watch.stop()]
    count = len(powers_w)
    assert count == pytest.approx(30, abs=2)
    assert powers_w.count(450.0) == pytest.approx(20, abs=2)
    lab.sleep(0.1)
    assert len(powers_w) == count
