"""A GPU's energy by kind, against powers that are known."""

import numpy as np
import pytest
from test_energy import OPTIMIZER_W, POWER_W, WAITING_W, training
from test_whole import Job, read_every

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.breakdown import KindEnergy, RankEnergy, energy_by_kind, few_rows
from perseus_ds.profiling.energy import attribute
from perseus_ds.profiling.spans import Span
from perseus_ds.profiling.table import CurveKey
from perseus_ds.profiling.window import SampledWindow

ITERATIONS = 120


def at_one_clock() -> tuple[list[Span], list[tuple[float, float]]]:
    """A training at the highest clock alone, as one that only observes."""
    now_s, spans, draws = 10.0, [], []
    rng = np.random.default_rng(1)
    for _ in range(60):
        for key, work_s in ((CurveKey(1, Kind.FORWARD), 0.03), (CurveKey(1, Kind.BACKWARD), 0.055)) * 2:
            spans.append(Span(now_s, now_s + work_s, key, 1410))
            draws.append((work_s, POWER_W[key, 1410]))
            now_s += work_s
        spans.append(Span(now_s, now_s + 0.02, None))
        wait_s = float(rng.uniform(0.02, 0.06))
        draws += [(0.02, OPTIMIZER_W), (wait_s, WAITING_W)]
        now_s += 0.02 + wait_s
    times_s = 10.0 + np.cumsum([0.0] + [seconds for seconds, _ in draws])
    energies_j = np.cumsum([0.0] + [seconds * watts for seconds, watts in draws])
    polls = np.arange(10.0, now_s, 0.02)
    return spans, list(zip(polls.tolist(), np.interp(polls, times_s, energies_j).tolist(), strict=True))


def test_at_one_clock_each_kind_has_its_own_energy():
    found = {one.kind: one for one in energy_by_kind(*at_one_clock(), iterations=60)}

    assert list(found) == ["backward", "forward", "waiting", "other_work"]
    assert [one.instructions for one in found.values()] == [2.0, 2.0, 0.0, 0.0]
    assert found["forward"].time_s == pytest.approx(0.06)
    assert found["forward"].energy_j == pytest.approx(0.06 * 400.0, rel=0.02)
    assert found["backward"].energy_j == pytest.approx(0.11 * 440.0, rel=0.02)
    assert found["waiting"].energy_j == pytest.approx(0.04 * WAITING_W, rel=0.1)
    assert found["other_work"].energy_j == pytest.approx(0.02 * OPTIMIZER_W, rel=0.1)


@pytest.mark.parametrize("latency_s", [0.0, 0.012])
def test_a_kind_s_energy_is_that_of_all_its_clocks(latency_s):
    spans, samples = training(latency_s)
    found = {one.kind: one for one in energy_by_kind(spans, samples, ITERATIONS, latency_s)}

    own_j = {
        kind: sum(
            (one.end_s - one.begin_s) * POWER_W[one.key, one.frequency_mhz]
            for one in spans
            if one.key and one.key.kind == kind
        )
        for kind in (Kind.FORWARD, Kind.BACKWARD)
    }
    for kind, energy_j in own_j.items():
        assert found[kind.value].energy_j * ITERATIONS == pytest.approx(energy_j, rel=0.03)


def test_a_counter_that_is_read_seldom_is_split_by_what_is_known_of_it():
    """It moves every 100 ms, and shows a second's average. Rare readings alone were 20 % off, for waiting."""
    counter = {"duty": 0.25, "offset": 0.75, "noise": 0.01, "fading_s": 1.0}
    job = Job(**counter)
    profiled = job.pipeline.spans[0]
    found = attribute(profiled[job.first_span :], job.samples, window=SampledWindow(0.75, 0.25, decay=10.0))
    begin = len(profiled)
    for _ in range(20):
        job.runs([(job.clocks[0],) * 16] * 4)
    seldom = read_every(0.0613, job.pipeline.samples(0, **counter))

    def error(kind: Kind, **known) -> float:
        rows = {one.kind: one for one in energy_by_kind(profiled[begin:], seldom, 20, **known)}
        return rows[kind.value].energy_j / (8 * job.pipeline.curves[CurveKey(0, kind)][0].energy_j) - 1.0

    for kind in (Kind.FORWARD, Kind.BACKWARD):
        assert abs(error(kind, found=found)) < 0.08, "the profile's powers"
        assert abs(error(kind, usual_period_s=0.101)) < 0.13, "the counter's period"


def test_the_sum_is_what_the_counter_says():
    spans, samples = training()
    found = energy_by_kind(spans, samples, ITERATIONS)

    times_s, energies_j = np.transpose(samples)
    counted_j = np.diff(np.interp([spans[0].begin_s, spans[-1].end_s], times_s, energies_j))[0]
    assert sum(one.energy_j for one in found) * ITERATIONS == pytest.approx(counted_j)
    assert sum(one.time_s for one in found) * ITERATIONS == pytest.approx(spans[-1].end_s - spans[0].begin_s)


def test_of_many_ranks_the_means_of_each_stage_are_few_rows():
    rows = [
        RankEnergy(rank, rank // 4, rank % 4 // 2, KindEnergy(kind, 2.0, 0.5, energy_j + rank))
        for rank in range(8)
        for kind, energy_j in (("forward", 100.0), ("waiting", 10.0))
    ]
    assert few_rows(rows, len(rows)) == tuple(rows)
    assert few_rows(rows, len(rows) - 1) == (
        RankEnergy(None, None, 0, KindEnergy("forward", 2.0, 0.5, 102.5)),
        RankEnergy(None, None, 0, KindEnergy("waiting", 2.0, 0.5, 12.5)),
        RankEnergy(None, None, 1, KindEnergy("forward", 2.0, 0.5, 104.5)),
        RankEnergy(None, None, 1, KindEnergy("waiting", 2.0, 0.5, 14.5)),
    )
