"""Rows and picture of followed powers, from iterations made up here."""

import pytest

from perseus_ds.report.power_rows import PowerOrder, power_chart, power_rows, slowdown_chart
from perseus_ds.report.run_stats import Measurement

SERIES = [
    {
        "iteration": number,
        "phase": "enforcing",
        "iteration_time_s": time_s,
        "energy_j": energy_j,
        "planned_time_s": 1.25 if number == 2 else None,
        "planned_energy_j": 450.0 if number == 2 else None,
    }
    for number, (time_s, energy_j) in enumerate(
        [(1.0, 500.0), (1.0, 500.0), (1.2, 480.0), (1.2, 468.0), (1.0, 500.0), (2.0, 600.0), (2.0, None)]
    )
]
ORDERS = [
    PowerOrder(2, 790.0, 2, at_floor=False),
    PowerOrder(4, None, 2, at_floor=False),
    PowerOrder(5, 100.0, None, at_floor=True),
]


def test_each_power_has_its_own_iterations():
    first, second = power_rows(ORDERS, SERIES, 2, Measurement(1.0, 500.0))
    assert (first["begin_iteration"], first["iterations"]) == (2, 2)
    assert first["measured_w"] == pytest.approx(2 * 948.0 / 2.4)
    assert first["slowdown"] == pytest.approx(0.2)
    assert (first["target_w"], first["answered_iterations"], first["uniform_slowdown"]) == (790.0, 2, None)
    assert (second["iterations"], second["measured_w"], second["at_floor"]) == (1, 600.0, True)


@pytest.mark.parametrize(("least_w", "slowdown"), [(320.0, 0.2), (370.0, None)], ids=["met", "no cap draws so little"])
def test_a_uniform_cap_gets_the_power_that_the_same_curves_predict_for_the_plans(least_w, slowdown):
    caps = [(1.0, 400.0), (1.5, 1.5 * least_w)]
    (row,) = power_rows(ORDERS[:1], SERIES, 1, Measurement(1.0, 400.0), caps)
    assert row["predicted_slowdown"] == pytest.approx(0.25)
    # 360 W were planned, which 40 % of the iterations at 1.5 s and 480 J draw with the others at 1 s and 400 J.
    assert row["uniform_slowdown"] == (slowdown and pytest.approx(slowdown))


def test_what_is_not_measured_yet_is_empty():
    (row,) = power_rows([PowerOrder(7, 100.0, 1, at_floor=False)], SERIES, 1, None)
    assert (row["measured_w"], row["slowdown"], row["iterations"]) == (None, None, 0)
    assert power_rows([], SERIES, 1, None) == []


def test_the_picture_has_a_line_for_each_target_and_one_for_the_measurement():
    drawn = power_chart(power_rows(ORDERS, SERIES, 1, None), SERIES, 1)
    assert drawn.count('class="curve chosen"') == 2
    assert drawn.count('class="curve measured"') == 1
    assert "790 W" in drawn


def test_a_slowdown_stands_beside_that_of_the_cap_where_it_is_known():
    rows = power_rows(ORDERS, SERIES, 1, Measurement(1.0, 400.0), [(1.0, 400.0), (1.5, 480.0)])
    assert [row["uniform_slowdown"] is None for row in rows] == [False, True]
    drawn = slowdown_chart(rows, SERIES)
    assert drawn.count('class="curve measured"') == 2
    assert drawn.count('class="curve baseline"') == 1
    assert "20.0 %" in drawn


def test_a_slowdown_is_the_mean_of_alternating_plans_without_the_stall_of_one_iteration():
    planned = [(1.1, 440.0), (1.3, 460.0)] * 4
    series = [
        {
            "iteration": number,
            "phase": "enforcing",
            "iteration_time_s": 1.01 * time_s + (0.8 if number == 5 else 0.0),
            "energy_j": energy_j,
            "planned_time_s": time_s,
            "planned_energy_j": energy_j,
        }
        for number, (time_s, energy_j) in enumerate(planned)
    ]
    (row,) = power_rows([PowerOrder(0, 375.0, 2, at_floor=False)], series, 1, Measurement(1.0, 450.0))
    assert row["slowdown"] == pytest.approx(1.01 * 1.2 - 1)
