"""What readings take: on the virtual driver as long as it is made to, and too long is told."""

import pytest

from perseus_ds.silicon.reading import READINGS
from perseus_ds.silicon.reading_cost import judge, measure, reading_cost


def test_each_reading_takes_the_driver_s_time(make_lab):
    outcome = reading_cost(make_lab(query_s=0.0005))
    assert outcome.passed, outcome.why
    for name in READINGS:
        assert outcome.figures[f"{name}_alone_us"] == pytest.approx(500.0)
        assert outcome.figures[f"{name}_among_8_p99_us"] == pytest.approx(4000.0)


@pytest.mark.parametrize(("query_s", "why"), [(0.006, "takes 6.0 ms, limit 5 ms"), (0.0078, "among 8, limit 50 ms")])
def test_readings_that_take_too_long_are_told(make_lab, query_s, why):
    assert why in reading_cost(make_lab(query_s=query_s)).why


def test_one_slow_reading_is_enough(make_lab):
    alone = measure(make_lab(query_s=0.0))
    assert judge(alone, alone).passed
    assert "power_w takes 60.0 ms among 8" in judge(alone, {**alone, "power_w": [0.06] * 10}).why
