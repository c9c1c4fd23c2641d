"""Axes, and charts whose marks stand where their values are."""

import math
import xml.etree.ElementTree as ElementTree

import pytest
from drawing import Drawing

from perseus_ds.report.svg import Axis, Chart, nice_ticks


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0.43, 0.52, [0.44, 0.46, 0.48, 0.5, 0.52]),
        (0, 5, [0, 1, 2, 3, 4, 5]),
        (0, 12, [0, 2.5, 5, 7.5, 10]),
        (-20, 230, [0, 50, 100, 150, 200]),
        (5, 5, [5]),
    ],
)
def test_ticks_are_round_numbers_within_the_axis(low, high, ticks):
    assert nice_ticks(low, high) == pytest.approx(ticks)


def test_as_many_ticks_as_fit_are_about_as_many_as_asked_for():
    assert nice_ticks(0, 10, count=2) == pytest.approx([0, 5, 10])
    assert nice_ticks(0, 10, count=10) == pytest.approx(list(range(11)))


def test_an_axis_around_values_has_room_on_both_sides_or_begins_at_zero():
    axis = Axis.around("J", [30.0, float("nan"), 10.0, math.inf], margin=0.1)
    assert (axis.label, axis.low, axis.high) == ("J", pytest.approx(8.0), pytest.approx(32.0))
    from_zero = Axis.around("J", [30.0, 10.0], margin=0.1, zero=True)
    assert (from_zero.low, from_zero.high) == (0.0, pytest.approx(33.0))
    one = Axis.around("J", [20.0], margin=0.1)
    assert (one.low, one.high) == (pytest.approx(18.0), pytest.approx(22.0))


def test_an_axis_of_nothing_or_of_one_value_can_be_drawn():
    for values in ([], [float("nan")], [3.0], [0.0]):
        axis = Axis.around("x", values)
        chart = Chart("empty", axis, axis)
        chart.dot(axis.low, axis.high, "plan")
        ElementTree.fromstring(chart.svg())


@pytest.fixture
def chart() -> Chart:
    return Chart('energy <of> "one"', Axis("time, s", 2.0, 12.0), Axis("energy, J", 100.0, 300.0))


def test_marks_stand_where_their_values_are(chart):
    chart.dot(4.0, 250.0, "plan", "a <tip>", radius=6.0)
    chart.line([(2.0, 100.0), (12.0, 300.0)], "bound")
    chart.area([(3.0, 150.0), (5.0, 200.0)], "shade")
    chart.box((8.0, 6.0), (120.0, 160.0), "work", "busy", opacity=0.5)
    chart.error_bar(9.0, 200.0, 25.0, "forward")
    drawing = Drawing(chart.svg())

    near = {"abs": 0.6}  # a tenth of a pixel is 0.1 J
    assert drawing.dots("plan") == [(pytest.approx(4.0, abs=0.02), pytest.approx(250.0, **near))]
    assert drawing.tips("circle", "plan") == ["a <tip>"]
    assert [one.get("r") for one in drawing.marks("circle", "plan")] == ["6"]
    (line,) = drawing.lines("bound")
    assert [value for point in line for value in point] == pytest.approx([2.0, 100.0, 12.0, 300.0], **near)
    (area,) = drawing.lines("shade", tag="polygon")
    corners = [(3.0, 150.0), (5.0, 200.0), (5.0, 100.0), (3.0, 100.0)]
    assert [value for point in area for value in point] == pytest.approx([v for c in corners for v in c], **near)
    assert drawing.boxes("work") == [pytest.approx((6.0, 8.0, 120.0, 160.0), **near)]
    assert drawing.marks("rect", "work")[0].get("fill-opacity") == "0.50"
    (bar,) = drawing.lines("bar forward")
    assert [y for _, y in bar] == pytest.approx([175.0, 225.0], **near)


def test_marks_lie_within_the_picture(chart):
    corners = [(2.0, 100.0), (12.0, 100.0), (2.0, 300.0), (12.0, 300.0)]

    for x, y in (chart.place(*corner) for corner in corners):
        assert 40 < x < chart.width
        assert 0 < y < chart.height - 30
    assert chart.place(2.0, 100.0)[1] > chart.place(2.0, 300.0)[1], "more is above"


def test_uprights_and_notes_have_their_text_beside_them(chart):
    chart.upright(7.0, "phase", "profiling", row=1)
    chart.upright(8.0, "phase", "solving")
    chart.note(4.0, 250.0, "EnvPipe", down_px=13.0)
    chart.note(4.0, 250.0, "Zeus", anchor="end")
    drawing = Drawing(chart.svg())

    for x, line in zip((7.0, 8.0), drawing.lines("phase"), strict=True):
        assert [value for point in line for value in point] == pytest.approx([x, 100.0, x, 300.0], abs=0.6)
    profiling, solving, envpipe, zeus = drawing.marks("text", "note")
    assert [one.text for one in (profiling, solving, envpipe, zeus)] == ["profiling", "solving", "EnvPipe", "Zeus"]
    assert float(profiling.get("x")) == pytest.approx(chart.place(7.0, 0.0)[0] + 3, abs=0.1)
    assert float(profiling.get("y")) == float(solving.get("y")) + 12
    x_px, y_px = chart.place(4.0, 250.0)
    assert (float(envpipe.get("x")), float(envpipe.get("y"))) == pytest.approx((x_px + 8, y_px - 6 + 13), abs=0.1)
    assert (float(zeus.get("x")), zeus.get("text-anchor")) == (pytest.approx(x_px - 8, abs=0.1), "end")


def test_axes_have_labels_ticks_and_a_grid(chart):
    drawing = Drawing(chart.svg())

    assert drawing.texts("label") == ["time, s", "energy, J"]
    assert drawing.texts("tick") == ["2", "4", "6", "8", "10", "12", "100", "150", "200", "250", "300"]
    assert len(drawing.marks("line", "grid")) == 11
    assert drawing.root.get("aria-label") == 'energy <of> "one"'
    assert drawing.root.get("viewBox") == "0 0 640 320"


def test_rows_have_names_instead_of_ticks():
    rows = Chart("stages", Axis("s", 0, 1), Axis("stage", 0, 2), labels=[(1.5, "0"), (0.5, "1")])
    drawing = Drawing(rows.svg())

    assert drawing.texts("tick")[-2:] == ["0", "1"]
    assert len(drawing.marks("line", "grid")) == len(drawing.texts("tick")) - 2


def test_an_instruction_too_short_to_see_is_seen():
    short = Chart("short", Axis("s", 0, 1), Axis("stage", 0, 1))
    short.box((0.5, 0.5), (0.0, 1.0), "work")

    (mark,) = Drawing(short.svg()).marks("rect", "work")
    assert mark.get("width") == "0.30"
    assert mark.get("fill-opacity") == "1.00"
