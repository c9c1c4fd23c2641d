"""The page of a check's results."""

from perseus_ds.silicon.check import EXPERIMENTS, TIME
from perseus_ds.silicon.page import ABOUT, page

FOUND = {
    "virtual": True,
    "gpu": "A GPU",
    "driver": "550",
    "date": "2026-01-02",
    "experiments": [
        {"name": "position", "passed": True, "figures": {"p50_us": 12.3456, "believed": "yes"}, "why": ""},
        {"name": "time", "passed": False, "figures": {}, "why": "it drifts"},
    ],
}


def test_the_page_tells_where_when_and_what():
    text = page(FOUND)
    for part in ("| GPU | A GPU |", "| passed | 1 of 2 |", "| p50 us | 12.35 |", "| believed | yes |"):
        assert part in text
    assert "**Failed:** it drifts" in text


def test_only_a_virtual_check_says_that_nothing_was_measured():
    assert "Nothing on this page was measured on silicon" in page(FOUND)
    assert "measured on silicon" not in page({**FOUND, "virtual": False})


def test_every_experiment_is_explained():
    assert set(ABOUT) == {*EXPERIMENTS, TIME}
