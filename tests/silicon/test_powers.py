"""Power from the counter's slope."""

import math

import pytest

from perseus_ds.silicon.lab import Load
from perseus_ds.silicon.powers import changed, counted_between, power_w, steady


def test_the_slope_is_the_power_between_two_times():
    rows = [(k * 0.01, (float(10 * (k // 10)), 5.0)) for k in range(400)]
    assert changed(rows)[:2] == [(pytest.approx(0.1), 10.0), (pytest.approx(0.2), 20.0)]
    assert power_w(rows, 1.0, 3.0) == pytest.approx(100.0)
    assert math.isnan(power_w(rows, 1.0, 1.2))


def test_what_was_counted_between_two_times_does_not_hang_on_the_updates():
    rows = [(k * 0.01, (float(10 * (k // 10)),)) for k in range(400)]
    assert counted_between(rows, 1.03, 3.09) == pytest.approx(206.0)


def test_a_steady_load_is_read_while_it_runs(make_lab):
    lab = make_lab(noise=0.0, leakage_per_k=0.0, power_limit_window_s=0.0)
    lab.work(Load.GENTLE, 5.0)
    rows = steady(lab, ("energy_j", "power_w"))
    assert {values[1] for _, values in rows} == {450.0}
    assert power_w(rows, rows[0][0], rows[-1][0]) == pytest.approx(450.0, rel=2e-3)
