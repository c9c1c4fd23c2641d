"""Small charts as inline SVG. Colours come from the page, so charts follow its light, dark or paper theme."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

__all__ = ["Axis", "Chart", "nice_ticks"]

_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 16.0, 14.0, 44.0


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        label: Quantity and unit.
        low: Smallest value shown.
        high: Largest value shown.
    """

    label: str
    low: float
    high: float

    @classmethod
    def around(cls, label: str, values: Iterable[float], margin: float = 0.05, zero: bool = False) -> Axis:
        """Return an axis that shows all values.

        Args:
            label: Quantity and unit.
            values: Values to show.
            margin: Space on both sides, as a share of the range.
            zero: Whether the axis begins at 0.
        """
        listed = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
        low, high = (0.0 if zero else min(listed)), max(listed)
        room = (high - low) * margin or abs(high) * margin or 1.0
        return cls(label, low if zero else low - room, high + room)


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about ``count`` round numbers between ``low`` and ``high``."""
    rough = (high - low) / max(count, 1)
    if not rough > 0:
        return [low]
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(scale * factor for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if scale * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass
class Chart:
    """A chart with two linear axes. Marks are drawn in the order of the calls.

    Attributes:
        title: Read aloud by screen readers.
        x: Horizontal axis.
        y: Vertical axis; ``labels`` replaces its ticks if it counts rows.
        width: In CSS pixels, scaled down on narrow screens.
        height: In CSS pixels.
        labels: (value, text) ticks of the vertical axis; None: round numbers.
    """

    title: str
    x: Axis
    y: Axis
    width: float = 640.0
    height: float = 320.0
    labels: Sequence[tuple[float, str]] | None = None
    _marks: list[str] = field(default_factory=list)

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return the pixel position of a point."""
        return self._px(x), self._py(y)

    def line(self, points: Iterable[tuple[float, float]], style: str) -> None:
        """Add a line through points."""
        path = " ".join(f"{self._px(x):.1f},{self._py(y):.1f}" for x, y in points)
        self._marks.append(f'<polyline class="{style}" points="{path}"/>')

    def area(self, points: Sequence[tuple[float, float]], style: str) -> None:
        """Fill between points and the horizontal axis."""
        floor = [(points[-1][0], self.y.low), (points[0][0], self.y.low)]
        path = " ".join(f"{self._px(x):.1f},{self._py(y):.1f}" for x, y in [*points, *floor])
        self._marks.append(f'<polygon class="{style}" points="{path}"/>')

    def dot(self, x: float, y: float, style: str, tip: str = "", radius: float = 3.0) -> None:
        """Add a point with a tooltip."""
        self._marks.append(
            f'<circle class="{style}" cx="{self._px(x):.1f}" cy="{self._py(y):.1f}" r="{radius:g}">{_tip(tip)}</circle>'
        )

    def error_bar(self, x: float, y: float, half_width: float, style: str) -> None:
        """Add a vertical error bar."""
        self.line([(x, y - half_width), (x, y + half_width)], f"bar {style}")

    def box(
        self, x: tuple[float, float], y: tuple[float, float], style: str, tip: str = "", opacity: float = 1.0
    ) -> None:
        """Add a rectangle between two values of each axis."""
        left, right = sorted(map(self._px, x))
        top, bottom = sorted(map(self._py, y))
        self._marks.append(
            f'<rect class="{style}" x="{left:.2f}" y="{top:.2f}" width="{max(right - left, 0.3):.2f}"'
            f' height="{bottom - top:.2f}" fill-opacity="{opacity:.2f}">{_tip(tip)}</rect>'
        )

    def upright(self, x: float, style: str, text: str = "", row: int = 0) -> None:
        """Add a vertical line over the whole height, with a short text at its top."""
        self.line([(x, self.y.low), (x, self.y.high)], style)
        if text:
            self._text(self._px(x) + 3, _TOP + 10 + 12 * row, text, "note")

    def note(self, x: float, y: float, text: str, anchor: str = "start", down_px: float = 0.0) -> None:
        """Add a text beside or slightly below a point."""
        self._text(self._px(x) + (8 if anchor == "start" else -8), self._py(y) - 6 + down_px, text, "note", anchor)

    def svg(self) -> str:
        """Return the SVG element."""
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" style="max-width:{self.width:g}px" role="img"'
            f' aria-label="{escape(self.title)}"><g class="axes">{self._axes()}</g>{"".join(self._marks)}</svg>'
        )

    def _px(self, x: float) -> float:
        return _LEFT + (x - self.x.low) / (self.x.high - self.x.low) * (self.width - _LEFT - _RIGHT)

    def _py(self, y: float) -> float:
        return self.height - _BOTTOM - (y - self.y.low) / (self.y.high - self.y.low) * (self.height - _TOP - _BOTTOM)

    def _text(self, x: float, y: float, text: str, style: str, anchor: str = "start") -> None:
        self._marks.append(_text(x, y, text, style, anchor))

    def _axes(self) -> str:
        left, right, bottom = _LEFT, self.width - _RIGHT, self.height - _BOTTOM
        parts = []
        for tick in nice_ticks(self.x.low, self.x.high, max(3, int(self.width / 100))):
            x = self._px(tick)
            parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom:.1f}"/>')
            parts.append(_text(x, bottom + 16, f"{tick:.6g}", "tick", "middle"))
        rows = self.labels
        if rows is None:
            rows = [(v, f"{v:.6g}") for v in nice_ticks(self.y.low, self.y.high, max(2, int(self.height / 60)))]
        for value, text in rows:
            y = self._py(value)
            if self.labels is None:
                parts.append(f'<line class="grid" x1="{left}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(_text(left - 6, y + 4, text, "tick", "end"))
        parts.append(_text((left + right) / 2, self.height - 8, self.x.label, "label", "middle"))
        middle = (_TOP + bottom) / 2
        parts.append(
            f'<text class="label" text-anchor="middle" transform="translate(14 {middle:.1f}) rotate(-90)">'
            f"{escape(self.y.label)}</text>"
        )
        return "".join(parts)


def _text(x: float, y: float, text: str, style: str, anchor: str = "start") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _tip(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""
