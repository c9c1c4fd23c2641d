"""Pictures for ``perseus-ds plan -o``."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from perseus_ds.frontier import evaluate
from perseus_ds.frontier.baselines import max_frequencies
from perseus_ds.frontier.plan import instruction_points
from perseus_ds.messages import PerseusError
from perseus_ds.profiling.table import CurveKey
from perseus_ds.report.plots import plot_frontier, plot_timeline


def test_frontier_and_timeline_are_pictures_that_say_what_they_show(problem, plan, tmp_path):
    highest = evaluate(problem, max_frequencies(problem))
    plot_frontier([plan], plan, highest, tmp_path / "frontier.svg", note="simulated GPUs")
    plot_timeline(problem, highest, plan, tmp_path / "timeline.svg", note="simulated GPUs")
    for name in ("frontier.svg", "timeline.svg"):
        assert (tmp_path / name).read_text().startswith("<?xml")
    plot_timeline(problem, highest, plan, tmp_path / "timeline.png")
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are saved."""
    figures = []
    monkeypatch.setattr("perseus_ds.report.plots._save", lambda figure, path: figures.append(figure))
    return figures


def test_the_frontier_s_lines_are_its_plans_by_time_and_its_bound(plan, drawn):
    slow = replace(plan, time_s=2 * plan.time_s, energy_j=0.8 * plan.energy_j, lower_bound_j=0.7 * plan.energy_j)
    highest = replace(plan, energy_j=1.2 * plan.energy_j)
    plot_frontier([slow, plan], plan, highest, "unused.svg", note="simulated GPUs")
    (axes,) = drawn[0].axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert lines == {
        "plans": [[plan.time_s, plan.energy_j], [slow.time_s, slow.energy_j]],
        "lower bound": [[plan.time_s, plan.lower_bound_j], [slow.time_s, slow.lower_bound_j]],
        "chosen": [[plan.time_s, plan.energy_j]],
        "highest clocks": [[highest.time_s, highest.energy_j]],
    }
    assert axes.get_title().endswith("\nsimulated GPUs")


def test_both_timelines_have_all_instructions_on_one_scale(problem, plan, drawn):
    slow = evaluate(problem, np.array([curve[-1].frequency_mhz for curve in curves_of(problem)]))
    plot_timeline(problem, plan, slow, "unused.svg")
    upper, lower = drawn[0].axes[:2]
    for axes, shown in ((upper, plan), (lower, slow)):
        boxes, outlines = axes.collections
        mhz = [shown.frequency_mhz[one] for one in problem.dag.instructions]
        times_s, effective_j = instruction_points(problem, mhz)
        begins_s = problem.dag.starts_s(times_s)
        corners = [path.get_extents() for path in boxes.get_paths()]
        assert [corner.x0 for corner in corners] == pytest.approx(begins_s[: len(corners)].tolist())
        assert [corner.x1 - corner.x0 for corner in corners] == pytest.approx(times_s.tolist())
        stages = [one.stage for one in problem.dag.instructions]
        assert [(corner.y0 + corner.y1) / 2 for corner in corners] == pytest.approx(stages)
        assert boxes.get_array().tolist() == pytest.approx((effective_j / times_s + 83.64).tolist())
        assert len(outlines.get_paths()) == len(problem.dag.critical_path(times_s))
        texts = [(text.get_position()[0], text.get_text()) for text in axes.texts]
        middles = [(corner.x0 + corner.x1) / 2 for corner in corners]
        assert [x for x, _ in texts] == pytest.approx(middles)
        assert [text for _, text in texts] == [str(one.microbatch) for one in problem.dag.instructions]
        assert axes.get_xlim() == (0.0, pytest.approx(slow.time_s))
        assert axes.get_ylim() == (problem.dag.stages - 0.5, -0.5)
    assert upper.collections[0].get_clim() == lower.collections[0].get_clim()


def curves_of(problem):
    return [problem.profile.curve(CurveKey.of(one)) for one in problem.dag.instructions]


def test_without_matplotlib_one_line_says_how_to_install_it(plan, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PerseusError) as raised:
        plot_frontier([plan], plan, plan, tmp_path / "frontier.svg")
    assert raised.value.code == "plots-missing"
