"""The table at the end of a job."""

from perseus_ds.report.closing import closing_table

FIGURES = {"iteration_time_s": 1.69, "energy_j": 2386.0, "power_w": 1412.0}
SUMMARY = {
    "framework": "deepspeed 0.19.8",
    "simulated": True,
    "baseline": FIGURES,
    "predicted": {**FIGURES, "energy_j": 2105.0},
    "measured": {**FIGURES, "energy_j": 2108.0},
    "saving": 0.1165,
    "predicted_saving": 0.1178,
    "slowdown": 0.0053,
    "profiling_iterations": 31,
}


def cells(table: str, title: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(f"│ {title} ")]
    return [cell.strip() for cell in line.strip("│").split("│")][1:]


def test_baseline_prediction_and_measurement_stand_side_by_side() -> None:
    table = closing_table(SUMMARY)
    assert cells(table, "iteration time") == ["1.690 s", "1.690 s", "1.690 s"]
    assert cells(table, "energy per iteration") == ["2386 J", "2105 J", "2108 J"]
    assert cells(table, "saving") == ["", "+11.78 %", "+11.65 %"]
    assert cells(table, "slowdown") == ["", "", "+0.53 %"]
    assert cells(table, "profiling cost")[-1] == "31 iterations"


def test_the_title_says_where_the_figures_come_from() -> None:
    assert "simulated GPUs" in closing_table(SUMMARY).splitlines()[0]
    assert "simulated" not in closing_table({**SUMMARY, "simulated": False})


def test_what_is_not_known_is_a_dash() -> None:
    table = closing_table({**SUMMARY, "measured": None, "saving": None, "slowdown": None})
    assert cells(table, "iteration time")[-1] == "-"
    assert cells(table, "saving") == ["", "+11.78 %", "-"]
