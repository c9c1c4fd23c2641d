"""What following a power signal costs."""

import pytest

from perseus_ds.frontier.plan import Plan
from perseus_ds.frontier.power_signal import Follower, SignalStep, read_signal
from perseus_ds.messages import PerseusError


def plan(time_s: float, power_w: float) -> Plan:
    return Plan({}, time_s, time_s * power_w, 0.0, 0)


FOLLOWER = Follower(
    [plan(1.0, 900.0), plan(1.1, 700.0), plan(1.5, 400.0)], [plan(1.0, 1000.0), plan(1.6, 500.0)], pipelines=2
)


def test_a_signal_holds_shares_and_powers(tmp_path):
    file = tmp_path / "signal.csv"
    file.write_text("iterations, power\n100,75%\n\n20, 1.2kW\n")
    assert read_signal(file) == [SignalStep(100, 0.75), SignalStep(20, None, 1200.0)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("iterations,power\n0,75%\n", "row 2, column 'iterations': '0'"),
        ("iterations,power\n5,75%\nmany,75%\n", "row 3, column 'iterations': 'many'"),
        ("iterations,power\n5\n", "row 2, column 'power': ''"),
        ("iterations,power\n5,-3kW\n", "column 'power': '-3kW'"),
        ("iterations,power\n5,nan%\n", "column 'power': 'nan%'"),
        ("iterations\n5\n", "a header or all rows are missing"),
        ("", "a header or all rows are missing"),
    ],
)
def test_a_wrong_one_gets_one_line(tmp_path, text, told):
    file = tmp_path / "signal.csv"
    file.write_text(text)
    with pytest.raises(PerseusError) as caught:
        read_signal(file)
    assert told in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_power_that_every_plan_keeps_to_costs_no_time():
    cost = FOLLOWER.cost(SignalStep(10, 1.0))
    assert (cost.target_w, cost.power_w) == (2000.0, 1800.0)
    assert (cost.slowdown, cost.uniform_slowdown) == (0.0, 0.0)
    assert (cost.energy_j, cost.uniform_energy_j) == (1800.0, 2000.0)


def test_between_two_plans_the_job_alternates_and_its_mean_is_the_target():
    cost = FOLLOWER.cost(SignalStep(10, None, 1600.0))
    assert cost.power_w == pytest.approx(1600.0)
    # x of 100 iterations run at 1.1 s and 770 J, the others at 1.0 s and 900 J: 800 W on average.
    share = 100.0 / 210.0
    assert cost.slowdown == pytest.approx(0.1 * share)
    assert cost.energy_j == pytest.approx(2 * (900.0 - 130.0 * share))
    assert cost.uniform_slowdown == pytest.approx(0.6 * 200.0 / 680.0)


def test_less_than_the_least_power_is_told():
    cost = FOLLOWER.cost(SignalStep(10, None, 900.0))
    assert (cost.met, cost.uniform_met) == (True, False)
    cost = FOLLOWER.cost(SignalStep(10, None, 700.0))
    assert (cost.met, cost.power_w) == (False, pytest.approx(800.0))
