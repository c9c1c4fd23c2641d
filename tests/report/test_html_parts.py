"""Pieces of the page: whatever a cell holds, it is escaped and short."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

from perseus_ds.report.html_parts import exact, figure_html, legend_html, one_digit, percent, short, table_html


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (1.23456789, "1.23457"),
        (7, "7"),
        ([1.0, None], "1; –"),
        ({"stage": 2, "factor": 1.5}, "stage 2, factor 1.5"),
        ("text", "text"),
    ],
)
def test_a_cell_is_short(value, text):
    assert short(value) == text


def test_a_table_holds_any_text():
    table = ElementTree.fromstring(table_html(("a & b", ""), [["<script>", 0.5]]))
    assert [cell.text for cell in table.iter("td")] == ["<script>", "0.5"]
    assert [cell.text for cell in table.iter("th")] == ["a & b", None]


def test_a_figure_has_its_caption_and_a_legend_its_colours():
    figure = ElementTree.fromstring(figure_html("<svg/>", "what it shows"))
    assert [one.tag for one in figure] == ["svg", "figcaption"]
    legend = ElementTree.fromstring(legend_html([("forward", "forward & more")]))
    assert legend.find("span/i").get("style") == "background:var(--forward)"
    assert "forward & more" in "".join(legend.itertext())


def test_a_program_reads_figures_at_full_precision():
    element = ElementTree.fromstring(f"<b {exact('saving', 0.1164999999)}/>")
    assert element.get("data-key") == "saving"
    assert json.loads(element.get("data-value")) == 0.1164999999


def test_people_read_them_rounded():
    assert percent(-0.0051) == "-0.51 %"
    assert one_digit(2.25) == "2.2"
