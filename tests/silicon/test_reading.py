"""What NVML tells, by name, above the simulated driver."""

import math

from perseus_ds.silicon.lab import Load
from perseus_ds.silicon.reading import READINGS


def test_each_reading_tells_what_its_name_says(make_lab):
    lab = make_lab(power_limit_window_s=0.0, leakage_per_k=0.0, noise=0.0)
    before_j = lab.readings["energy_j"]()
    lab.work(Load.GENTLE, 2.0)
    lab.sleep(1.0)
    assert list(lab.readings) == list(READINGS)
    assert [round(lab.readings[name]()) for name in READINGS[1:4]] == [450, 450, 450]
    assert lab.readings["sm_clock_mhz"]() == 1980
    assert lab.readings["reasons"]() == 0
    assert math.isclose(lab.readings["energy_j"]() - before_j, 450.0 * 0.95, rel_tol=0.1)
