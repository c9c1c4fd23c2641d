"""One iteration as it is drawn: when each instruction runs, what it draws, and what is critical."""

import itertools

import numpy as np
import pytest
from drawing import Drawing

from perseus_ds.frontier import evaluate
from perseus_ds.frontier.baselines import max_frequencies
from perseus_ds.report.timeline import power_chart, timeline_chart, timeline_of


def test_the_area_under_the_power_chart_is_the_plan_s_energy(problem, plan):
    for one in (plan, evaluate(problem, max_frequencies(problem))):
        timeline = timeline_of(problem, one)
        steps = timeline.power_steps()
        area_j = sum(watts * (later - now) for (now, watts), (later, _) in itertools.pairwise(steps))
        assert area_j == pytest.approx(one.energy_j, rel=1e-9)
        assert timeline.time_s == pytest.approx(one.time_s)


def test_the_critical_path_has_no_gap(problem, plan):
    timeline = timeline_of(problem, plan)
    begins = np.array([timeline.begin_s[i] for i in sorted(timeline.critical, key=lambda i: timeline.begin_s[i])])
    ends = np.array([timeline.end_s[i] for i in sorted(timeline.critical, key=lambda i: timeline.begin_s[i])])
    assert begins[0] == 0.0
    assert begins[1:] == pytest.approx(ends[:-1])
    assert ends[-1] == pytest.approx(timeline.time_s)


def test_every_instruction_is_drawn_from_its_begin_to_its_end_and_says_what_it_is(problem, plan):
    timeline = timeline_of(problem, plan)
    drawing = Drawing(timeline_chart(timeline, "a <title> & more", 1.2 * plan.time_s))
    boxes = drawing.boxes("work")
    pixel_s = 1.2 * plan.time_s / 900
    assert [box[0] for box in boxes] == pytest.approx(timeline.begin_s.tolist(), abs=pixel_s)
    assert [box[1] for box in boxes] == pytest.approx(timeline.end_s.tolist(), abs=pixel_s)
    heights = {round((low + high) / 2, 1) for _, _, low, high in boxes}
    assert len(heights) == problem.dag.stages
    tips = drawing.tips("rect", "work")
    for index in (0, len(tips) // 2, len(tips) - 1):
        took_ms = 1e3 * (timeline.end_s[index] - timeline.begin_s[index])
        what = f"{problem.dag.instructions[index].label}: {timeline.mhz[index]} MHz, {took_ms:.1f} ms, "
        assert tips[index].startswith(f"{what}{timeline.power_w[index]:.0f} W")
    assert sum(tip.endswith(", on the critical path") for tip in tips) == len(timeline.critical)
    assert len(drawing.marks("rect", "work critical")) == len(timeline.critical)
    assert len(drawing.marks("rect", "work backward")) == len(problem.dag.instructions) // 2
    assert drawing.root.get("aria-label") == "a <title> & more"


def test_lower_clocks_are_paler_and_the_end_is_marked(problem, plan):
    timeline = timeline_of(problem, plan)
    drawing = Drawing(timeline_chart(timeline, "", plan.time_s))
    opacity = np.array([float(one.get("fill-opacity")) for one in drawing.marks("rect", "work")])
    assert (opacity.min(), opacity.max()) == (0.3, 1.0)
    assert opacity[np.argmax(timeline.mhz)] == 1.0
    assert np.corrcoef(opacity, timeline.mhz)[0, 1] > 0.999
    (end,) = drawing.lines("switch")
    assert end[0][0] == pytest.approx(timeline.time_s, rel=2e-3)
    waits = drawing.boxes("wait")
    assert len(waits) == problem.dag.stages
    assert [wait[1] for wait in waits] == pytest.approx([timeline.time_s] * len(waits), rel=2e-3)


def test_power_is_drawn_as_a_line_over_its_area(problem, plan):
    before, after = timeline_of(problem, evaluate(problem, max_frequencies(problem))), timeline_of(problem, plan)
    drawing = Drawing(power_chart([(before, "baseline"), (after, "chosen")], before.time_s))
    highest_w = max(watts for _, watts in before.power_steps())
    for timeline, style in ((before, "baseline"), (after, "chosen")):
        (line,) = drawing.lines(f"curve {style}")
        (area,) = drawing.lines(f"shade {style}", tag="polygon")
        corners = timeline.power_steps()
        assert [watts for _, watts in line] == pytest.approx([watts for _, watts in corners], abs=0.01 * highest_w)
        assert area[: len(line)] == line
        assert [watts for _, watts in area[len(line) :]] == pytest.approx([0.0, 0.0], abs=0.01 * highest_w)
