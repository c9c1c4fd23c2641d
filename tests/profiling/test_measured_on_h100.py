"""What a real H100's counter and the device's clock told of two programs, against each load's power alone."""

import json
from pathlib import Path

import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.energy import attribute
from perseus_ds.profiling.regression import CONFIDENCE
from perseus_ds.profiling.spans import Span
from perseus_ds.profiling.table import CurveKey

MEASURED = Path(__file__).parent / "h100"


def found_in(name):
    """The counter's points are the first reads that saw them; clocks were at 1,980 MHz throughout."""
    measured = json.loads((MEASURED / name).read_text())
    spans = [Span(begin_s, end_s, CurveKey(0, Kind(kind)), 1980) for kind, begin_s, end_s in measured["spans"]]
    return attribute(spans, [(at_s, energy_j) for at_s, energy_j in measured["points"]])


def powers_w(found):
    """Forward, backward and waiting: value and half width of the interval."""
    columns = {key.kind: at for at, (key, _) in enumerate(found.states)}
    order = columns[Kind.FORWARD], columns[Kind.BACKWARD], len(found.states)
    return [(found.power.values[at], CONFIDENCE * found.power.sd[at]) for at in order]


def test_a_mix_of_two_loads_and_waits_has_the_powers_of_each_alone():
    """The counter fades by 12 ms. A search that began at half a period found an average instead: waiting + 4.7 %."""
    found = found_in("mix.json")
    assert found.verdict.explained
    assert found.period_s == pytest.approx(0.1, rel=1e-4)
    assert found.window.decay * found.period_s == pytest.approx(0.0125, abs=0.005)
    # Before and after the mix, as the GPU warmed up: fp32 matrix work, memory work, waiting.
    for (value_w, doubt_w), (cold_w, warm_w) in zip(
        powers_w(found), [(640.7, 644.9), (390.4, 392.4), (122.5, 125.0)], strict=True
    ):
        assert cold_w - doubt_w < value_w < warm_w + doubt_w
        assert value_w == pytest.approx((cold_w + warm_w) / 2.0, rel=0.02)


def test_forwards_and_backwards_that_alternate_though_a_backward_draws_more_in_its_first_half():
    """Forwards of 25 ms matrix work, backwards of 30 ms matrix and 25 ms memory work, spinning of 1 to 20 ms between.

    With one power throughout each instruction, backwards came out 6 % too low, and waits 20 % too high.
    """
    found = found_in("rank.json")
    assert found.verdict.explained
    matrix_w, memory_w, spinning_w = 634.0, 391.0, 136.4  # alone, and as warm
    backward_w = (30 * matrix_w + 25 * memory_w) / 55
    for (value_w, doubt_w), true_w in zip(powers_w(found), (matrix_w, backward_w, spinning_w), strict=True):
        assert abs(value_w - true_w) < doubt_w + 0.01 * true_w
        assert doubt_w < 0.08 * matrix_w
