"""Powers where several windows of the counter leave the same noise."""

import json
from math import inf
from pathlib import Path

import numpy as np
import pytest
from test_whole import LATENCY_S, Job

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.energy import attribute
from perseus_ds.profiling.regression import CONFIDENCE
from perseus_ds.profiling.spans import Span
from perseus_ds.profiling.table import CurveKey


def test_of_windows_that_leave_the_same_noise_the_one_with_the_most_evidence_counts():
    """A simulated GH200, last stage of two: forwards and backwards of 47 and 87 ms alternate throughout.

    Its counter looks at a quarter of 100 ms, at an average over 1 s. The simplest window of those that left the same
    noise had all of the period: forwards came out 51 % too high, backwards 27 % too low, in intervals of 11 %.
    """
    seen = json.loads((Path(__file__).parent / "gh200" / "last_stage.json").read_text())
    spans = [
        Span(begin_s, end_s, CurveKey(1, Kind(kind)) if kind else None, mhz, -inf if asked_s is None else asked_s)
        for kind, begin_s, end_s, mhz, asked_s in seen["spans"]
    ]
    true_w = {(kind, mhz): power_w for kind, mhz, power_w in seen["true_w"]}

    found = attribute(spans, [(at_s, energy_j) for at_s, energy_j in seen["points"]], seen["latency_s"])

    assert found.window.width == pytest.approx(0.25, abs=0.1)
    assert found.window.decay * found.period_s == pytest.approx(1.0, rel=0.1)
    for kind in ("forward", "backward"):
        errors, doubts = np.transpose(
            [
                (value / true_w[kind, mhz] - 1.0, CONFIDENCE * sd / value)
                for (key, mhz), value, sd in zip(found.states, found.power.values, found.power.sd, strict=False)
                if key.kind.value == kind and (kind, mhz) in true_w
            ]
        ).tolist()
        assert abs(np.mean(errors)) < 2.0 * np.mean(doubts)
        assert abs(np.mean(errors)) < 0.2


def test_powers_are_found_between_evaluations_that_follow_each_other_sooner_than_long_windows_reach() -> None:
    """Every second iteration something ran that does not count; windows of up to 5 s would leave no increments."""
    job = Job(duty=0.25, offset=0.75)
    spans = job.pipeline.spans[0][job.first_span :]
    evaluated_s = [spans[at].begin_s for at in range(32, len(spans), 32)]
    evaluations = [Span(at_s - 5e-4, at_s - 1e-4, None, excluded=True) for at_s in evaluated_s]

    found = attribute(sorted([*spans, *evaluations], key=lambda one: one.begin_s), job.samples, LATENCY_S)

    assert found.verdict.explained
    rows = [(key, point) for key, points in found.curves.items() for point in points]
    errors = [p.energy_j / np.prod(job.pipeline.truth[key, p.frequency_mhz]) - 1.0 for key, p in rows]
    assert np.sqrt(np.mean(np.square(errors))) < 0.02
