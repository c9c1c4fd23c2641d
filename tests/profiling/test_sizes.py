"""Micro-batches of different sizes: the profile is that of a usual one all the same."""

from pathlib import Path

import numpy as np
import pytest
from pipeline_truth import TruePipeline

import perseus_ds
from perseus_ds.config import ProfilingConfig
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.energy import attribute
from perseus_ds.profiling.sizes import microbatch_sizes, sized, uneven_within
from perseus_ds.profiling.spans import Between, Segment, Span
from perseus_ds.profiling.sweep import Sweep
from perseus_ds.profiling.table import CurveKey, read_profile

PROFILE = Path(perseus_ds.__file__).parent / "simulator" / "profiles" / "gpt3-175b-a100-sxm.csv"
FORWARD, BACKWARD = CurveKey(0, Kind.FORWARD), CurveKey(0, Kind.BACKWARD)


def test_a_micro_batch_s_size_is_what_its_instructions_took_over_what_is_usual():
    took_s = {0: (1.2, 2.4), 1: (0.8, 1.6), 2: (1.3, 2.6), 3: (0.7, 1.4)}
    did, now_s = [], 0.0
    for microbatch, durations_s in took_s.items():
        for key, time_s in zip((FORWARD, BACKWARD), durations_s, strict=True):
            did += [Segment(now_s, now_s + time_s, key, 1400, True, (0, microbatch))]
            did += [Segment(now_s + time_s, now_s + time_s + 9.0, Between.WAITING, 1400, True)]
            now_s += time_s + 9.0
    sizes = microbatch_sizes(did)
    assert sizes == {
        (0, 0): pytest.approx(1.2),
        (0, 1): pytest.approx(0.8),
        (0, 2): pytest.approx(1.3),
        (0, 3): pytest.approx(0.7),
    }


def test_work_has_the_size_of_its_micro_batch_and_an_unknown_one_where_that_was_not_told():
    told, unknown = (Span(0.0, 1.0, FORWARD, 1400, batch=(0, microbatch)) for microbatch in (0, 1))
    other = Span(2.0, 3.0, None)
    assert sized([told, other], {}) == [told, other]
    sizes = [span.size for span in sized([told, unknown, other], {(0, 0): 1.2})]
    assert sizes == [1.2, pytest.approx(np.nan, nan_ok=True), 1.0]


def test_noise_and_a_late_host_make_no_different_sizes():
    chance = np.random.default_rng(0)
    assert not uneven_within(chance.normal(1.0, 0.01, 500))
    delayed = chance.normal(1.0, 0.01, 500) + 0.5 * (chance.random(500) < 0.3)
    assert not uneven_within(delayed)
    assert uneven_within(chance.normal(1.0, 0.05, 500))


@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_a_few_delayed_forwards_do_not_bend_the_sizes(spread):
    """Forwards and backwards ran at clocks of their own; 5 % of the forwards took up to four times as long."""
    chance, did, true, now_s = np.random.default_rng(2), [], {}, 0.0
    for iteration in range(30):
        clocks_mhz = chance.permutation(np.arange(1980, 1200, -21))[:4].tolist()
        for microbatch in range(8):
            size = true[iteration, microbatch] = np.exp(spread * chance.normal())
            for key, work, mhz in (
                (FORWARD, 20.0, clocks_mhz[microbatch // 4]),
                (BACKWARD, 40.0, clocks_mhz[2 + microbatch // 4]),
            ):
                delay = 1.0 + 3.0 * chance.random() * (key == FORWARD and chance.random() < 0.05)
                time_s = size * work / mhz * (1.0 + 0.003 * chance.normal()) * delay
                did.append(Segment(now_s, now_s + time_s, key, mhz, True, (iteration, microbatch)))
                now_s += time_s
    sizes = microbatch_sizes(did)
    assert bool(sizes) == bool(spread)
    off = {one.batch: sizes.get(one.batch, 1.0) / true[one.batch] for one in did if one.what == BACKWARD}
    slow, fast = (
        np.median([off[one.batch] for one in did if one.what == BACKWARD and (one.clock_mhz < 1500) is low])
        for low in (True, False)
    )
    assert slow / fast == pytest.approx(1.0, abs=0.003)


@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_the_curves_are_those_of_a_usual_micro_batch(spread):
    curves = {key: points for key, points in read_profile(PROFILE).curves.items() if key.stage < 2}
    job = TruePipeline(curves, size_spread=spread, seed=4)
    clocks_mhz = tuple(sorted({p.frequency_mhz for points in curves.values() for p in points}, reverse=True))
    for _ in range(4):
        job.run([(clocks_mhz[0],) * 16] * 2)
    sweeps = [Sweep(job.keys(stage), clocks_mhz, ProfilingConfig(max_iterations=40), 0.01, 0.1) for stage in range(2)]
    for _ in range(40):
        job.run([sweep.next_frequencies() for sweep in sweeps])
    found = attribute(job.spans[1], job.samples(1), job.switch_latency_s)
    assert found.verdict.explained
    truth = {(key, p.frequency_mhz): p for key, points in curves.items() for p in points}
    pairs = [(truth[key, p.frequency_mhz], p) for key, points in found.curves.items() for p in points]
    times = np.array([p.time_s / t.time_s - 1.0 for t, p in pairs])
    powers = np.array([p.energy_j / p.time_s / (t.energy_j / t.time_s) - 1.0 for t, p in pairs])
    print(spread, len(pairs), times.mean(), times.std(), np.abs(powers).mean(), np.abs(powers).max())
    assert abs(times.mean()) < 0.02
    assert times.std() < 0.025
    assert np.abs(powers).mean() < 0.03
