"""Building blocks of the HTML report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

__all__ = [
    "exact",
    "figure_html",
    "legend_html",
    "one_digit",
    "percent",
    "short",
    "table_html",
]


def figure_html(chart: str, caption: str) -> str:
    """Return a chart with its caption."""
    return f"<figure>{chart}<figcaption>{caption}</figcaption></figure>"


def legend_html(entries: Iterable[tuple[str, str]]) -> str:
    """Return a legend from colour names (CSS variables) and texts."""
    items = "".join(
        f'<span><i style="background:var(--{colour})"></i>{escape(text)}</span>' for colour, text in entries
    )
    return f'<div class="legend">{items}</div>'


def table_html(heads: Iterable[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table; a wide one scrolls sideways."""
    head = "".join(f"<th>{escape(str(name))}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(short(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def short(value: Any) -> str:
    """Return the cell text of a value; a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return "; ".join(short(one) for one in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {short(one)}" for name, one in value.items())
    return str(value)


def exact(key: str, value: Any) -> str:
    """Return attributes with a figure at full precision, for programs that read the page."""
    return f'data-key="{key}" data-value="{escape(json.dumps(value))}"'


def percent(fraction: float) -> str:
    """Return a fraction as a signed percentage."""
    return f"{100 * fraction:+.2f} %"


def one_digit(value: float) -> str:
    """Return a number with one decimal."""
    return f"{value:.1f}"
