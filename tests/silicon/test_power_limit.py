"""A minute at the power limit: calm on the virtual GPU, and told where it gets slower."""

import dataclasses

import pytest

from perseus_ds.silicon.power_limit import judge, measure


@pytest.fixture(scope="module")
def minute(virtual_lab):
    return measure(virtual_lab)


def test_the_limit_looks_like_no_straggler_and_no_drift(minute):
    outcome = judge(minute)
    assert outcome.passed, outcome.why
    assert outcome.figures["sustained_w"] == pytest.approx(700.0, rel=0.02)
    assert outcome.figures["reasons"] == "0x4"
    assert outcome.figures["sustained_mhz"] < outcome.figures["highest_mhz"] == 1980.0
    assert 100.0 < outcome.figures["governor_ms"] < 3000.0
    assert outcome.figures["clock_renewed_ms"] == pytest.approx(100.0, abs=15.0)  # NVML's readings are no fresher


@pytest.mark.parametrize(("pieces", "why"), [(4, "a straggler was declared"), (60, "a drift was declared")])
def test_pieces_that_take_longer_are_told(minute, pieces, why):
    longer = tuple(s * (1.2 if 80 <= k < 80 + pieces else 1.0) for k, s in enumerate(minute.pieces_s))
    assert why in judge(dataclasses.replace(minute, pieces_s=longer)).why
