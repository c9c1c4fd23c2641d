"""Reads a chart back: which values its marks stand at, by its own ticks."""

import xml.etree.ElementTree as ElementTree

import numpy as np


class Drawing:
    """A chart as somebody reads it who has the axes only."""

    def __init__(self, svg: str) -> None:
        self.root = ElementTree.fromstring(svg)
        ticks = [one for one in self.root.iter("text") if one.get("class") == "tick"]
        across = [(float(one.get("x")), float(one.text)) for one in ticks if one.get("text-anchor") == "middle"]
        up = [(float(one.get("y")) - 4.0, float(one.text)) for one in ticks if one.get("text-anchor") == "end"]
        self._x, self._y = np.polyfit(*zip(*across, strict=True), 1), np.polyfit(*zip(*up, strict=True), 1)

    def marks(self, tag: str, style: str) -> list[ElementTree.Element]:
        """The marks whose class has all words of a style."""
        return [one for one in self.root.iter(tag) if {*style.split()} <= {*one.get("class", "").split()}]

    def dots(self, style: str) -> list[tuple[float, float]]:
        return [self._value(float(one.get("cx")), float(one.get("cy"))) for one in self.marks("circle", style)]

    def lines(self, style: str, tag: str = "polyline") -> list[list[tuple[float, float]]]:
        pairs = [[pair.split(",") for pair in one.get("points").split()] for one in self.marks(tag, style)]
        return [[self._value(float(x), float(y)) for x, y in points] for points in pairs]

    def boxes(self, style: str) -> list[tuple[float, float, float, float]]:
        """Left, right, bottom, top of each rectangle."""
        found = []
        for one in self.marks("rect", style):
            left, top, width, height = (float(one.get(name)) for name in ("x", "y", "width", "height"))
            (x0, y1), (x1, y0) = self._value(left, top), self._value(left + width, top + height)
            found.append((x0, x1, y0, y1))
        return found

    def tips(self, tag: str, style: str) -> list[str]:
        return ["".join(one.itertext()) for one in self.marks(tag, style)]

    def texts(self, style: str) -> list[str]:
        return [one.text or "" for one in self.marks("text", style)]

    def _value(self, x: float, y: float) -> tuple[float, float]:
        return float(np.polyval(self._x, x)), float(np.polyval(self._y, y))
