"""One profile of a pipeline from the measurements of all its ranks."""

from dataclasses import replace

import numpy as np
import pytest
from pipeline_truth import TruePipeline

from perseus_ds.config import ProfilingConfig
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.energy import Attribution, attribute
from perseus_ds.profiling.judge import Verdict
from perseus_ds.profiling.law import power_law
from perseus_ds.profiling.merge import merge_profiles
from perseus_ds.profiling.pooling import borrow, pool
from perseus_ds.profiling.sweep import Sweep
from perseus_ds.profiling.table import CurveKey, ProfilePoint

CLOCKS = tuple(range(1410, 1100, -15))


def made_up_curves(stages: int) -> dict[CurveKey, tuple[ProfilePoint, ...]]:
    def point(stage: int, kind: Kind, mhz: int) -> ProfilePoint:
        time_s = (0.01 + 40.0 / mhz) * (1.0 + 0.1 * stage) * (1 if kind is Kind.FORWARD else 1.8)
        return ProfilePoint(mhz, time_s, time_s * (100.0 + 300.0 * (mhz / 1410) ** 2.5))

    keys = [CurveKey(stage, kind) for stage in range(stages) for kind in (Kind.FORWARD, Kind.BACKWARD)]
    return {key: tuple(point(key.stage, key.kind, mhz) for mhz in CLOCKS) for key in keys}


@pytest.fixture(scope="module")
def measured() -> tuple[TruePipeline, list[Attribution]]:
    pipeline = TruePipeline(made_up_curves(4), seed=3)
    config = ProfilingConfig(max_iterations=20)
    sweeps = [Sweep(pipeline.keys(stage), CLOCKS, config, 0.01, 0.05) for stage in range(4)]
    while not sweeps[0].done:
        pipeline.run([sweep.next_frequencies() for sweep in sweeps])
    return pipeline, [attribute(pipeline.spans[s], pipeline.samples(s), 0.01) for s in range(4)]


def errors(pipeline: TruePipeline, attribution: Attribution) -> list[float]:
    rows = ((key, point) for key, points in attribution.curves.items() for point in points)
    return [p.energy_j / np.prod(pipeline.truth[key, p.frequency_mhz]) - 1.0 for key, p in rows]


def scaled(attribution: Attribution, time: float, energy: float) -> Attribution:
    """A rank that differs, as far as the merge can tell."""
    curves = {
        key: tuple(p._replace(time_s=p.time_s * time) for p in points) for key, points in attribution.curves.items()
    }
    power = replace(attribution.power, values=attribution.power.values * energy / time)
    return replace(attribution, curves=curves).with_power(power)


def test_ranks_sharpen_each_other(measured: tuple[TruePipeline, list[Attribution]]) -> None:
    pipeline, attributions = measured

    alone = np.concatenate([errors(pipeline, one) for one in attributions])
    together = np.concatenate([errors(pipeline, one) for one in pool(attributions)])

    assert np.sqrt(np.mean(together**2)) < 0.9 * np.sqrt(np.mean(alone**2))
    assert np.abs(together).max() < 0.025


def test_a_gpu_that_draws_more_than_the_others_keeps_its_level(
    measured: tuple[TruePipeline, list[Attribution]],
) -> None:
    pipeline, attributions = measured
    hot = attribute(pipeline.spans[1], [(at_s, 1.1 * energy_j) for at_s, energy_j in pipeline.samples(1)], 0.01)

    pooled = pool([attributions[0], hot, *attributions[2:]])

    own = np.array(errors(pipeline, pooled[1])) - 0.1
    assert abs(own.mean()) < 0.01
    assert np.sqrt(np.mean(own**2)) < 0.02
    assert abs(np.mean(errors(pipeline, pooled[0]))) < 0.01


def test_one_rank_alone_stays_as_it_is(measured: tuple[TruePipeline, list[Attribution]]) -> None:
    assert pool(measured[1][:1]) == measured[1][:1]


def test_every_stage_is_in_the_profile(measured: tuple[TruePipeline, list[Attribution]]) -> None:
    pipeline, attributions = measured

    profile, blocking_power_w = merge_profiles((0, one) for one in attributions)

    assert set(profile.curves) == set(pipeline.curves)
    assert all(len(points) == len(CLOCKS) for points in profile.curves.values())
    assert blocking_power_w == pytest.approx(83.64, rel=0.03)


def test_tensor_parallel_ranks_give_the_longest_time_and_the_mean_energy_of_one_gpu(
    measured: tuple[TruePipeline, list[Attribution]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perseus_ds.profiling.merge.pool", list)
    one = measured[1][0]

    profile, _ = merge_profiles([(0, one), (0, scaled(one, time=1.1, energy=1.2))])

    for key, points in profile.curves.items():
        for point, own in zip(points, one.curves[key], strict=True):
            assert point.time_s == pytest.approx(1.1 * own.time_s)
            assert point.energy_j == pytest.approx(1.1 * own.energy_j)


def test_intervals_shrink_with_the_gpus_that_were_measured(
    measured: tuple[TruePipeline, list[Attribution]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perseus_ds.profiling.merge.pool", list)
    one = measured[1][0]

    shards, _ = merge_profiles([(0, one), (0, one), (0, one)])
    replicas, _ = merge_profiles([(pipeline, one) for pipeline in range(4)])

    for key, points in one.curves.items():
        for point, of_three, of_four in zip(points, shards.curves[key], replicas.curves[key], strict=True):
            # The longest of three times is as uncertain as one; a mean of three energies is not.
            assert of_three.time_ci_s == pytest.approx(point.time_ci_s)
            assert of_three.energy_ci_j == pytest.approx(point.energy_ci_j / 3**0.5)
            assert of_four.time_ci_s == pytest.approx(point.time_ci_s / 2)
            assert of_four.energy_ci_j == pytest.approx(point.energy_ci_j / 2)


def test_one_straggling_pipeline_among_three_does_not_count(
    measured: tuple[TruePipeline, list[Attribution]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perseus_ds.profiling.merge.pool", list)
    one = measured[1][0]

    profile, _ = merge_profiles([(0, one), (1, scaled(one, time=1.5, energy=1.4)), (2, one)])

    for key, points in profile.curves.items():
        assert [p[:3] for p in points] == [p[:3] for p in one.curves[key]]


def test_what_the_power_limit_makes_of_the_highest_clock_is_to_be_asked_for_there(
    measured: tuple[TruePipeline, list[Attribution]],
) -> None:
    """One GPU settles at 1,395 MHz, its replica at 1,365: both ran like that because 1,410 MHz were asked for."""
    _, attributions = measured

    def limited(one: Attribution, to_mhz: int) -> Attribution:
        held = {key: [p for p in points if p.frequency_mhz <= to_mhz] for key, points in one.curves.items()}
        curves = {key: (first._replace(frequency_mhz=1410), *others) for key, (first, *others) in held.items()}
        return replace(one, curves=curves, sustained_mhz=dict.fromkeys(curves, to_mhz))

    ranks = [(pipeline, limited(one, mhz)) for pipeline, mhz in ((0, 1395), (1, 1365)) for one in attributions]
    profile, _ = merge_profiles(ranks)

    assert profile.limited == set(profile.curves)
    assert merge_profiles([(0, one) for one in attributions])[0].limited == set()
    for key, points in profile.curves.items():
        tops_s = [one.curves[key][0].time_s for _, one in ranks if key in one.curves]
        assert points[0][:2] == (1410, pytest.approx(np.mean(tops_s)))
        assert points[1].frequency_mhz == 1380, "1,395 MHz of themselves are no clock that was tried"


def test_a_clock_that_one_tensor_parallel_rank_lacks_is_left_out(
    measured: tuple[TruePipeline, list[Attribution]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perseus_ds.profiling.merge.pool", list)
    one = measured[1][0]
    fewer = replace(one, curves={key: points[1:] for key, points in one.curves.items()})

    profile, _ = merge_profiles([(0, one), (0, fewer)])

    assert all(points[0].frequency_mhz == CLOCKS[1] for points in profile.curves.values())


@pytest.mark.parametrize(
    ("told_s", "merged_s"), [((None, None, None, 0.0005), 0.0005), ((None, 0.0, 0.0, 0.001), 0.0), ((None,) * 4, 0.0)]
)
def test_ranks_that_cannot_tell_what_a_request_costs_have_no_say(
    measured: tuple[TruePipeline, list[Attribution]], told_s: tuple[float | None, ...], merged_s: float
) -> None:
    _, attributions = measured
    told = [replace(one, request_stall_s=stall_s) for one, stall_s in zip(attributions, told_s, strict=True)]
    profile, _ = merge_profiles([(0, one) for one in told], "live profile")
    assert profile.request_stall_s == merged_s


def unexplained(attribution: Attribution) -> Attribution:
    """As it is where no model of the counter explains the increments: by the power law, with the same sum."""
    evidence = attribution.evidence
    law = power_law(attribution.states, np.ones(len(attribution.power.values)), 1.0)
    level = float(evidence.moment @ law.values) / float(law.values @ evidence.gram @ law.values)
    fit = replace(law, values=level * law.values, sd=level * law.sd)
    return replace(attribution, verdict=Verdict(9.0, 0.0, 0.1)).with_power(fit)


def with_one_unknown_more(attribution: Attribution) -> Attribution:
    """As it is where the counter's window is of another form."""
    power, evidence = attribution.power, attribution.evidence
    more = replace(
        evidence,
        gram=np.pad(evidence.gram, (0, 1)) + np.diag(np.append(np.zeros(len(evidence.gram)), 1.0)),
        moment=np.append(evidence.moment, 0.0),
        clock=np.append(evidence.clock, 0.0),
        scale=np.append(evidence.scale, evidence.scale[-1]),
    )
    longer = replace(power, values=np.append(power.values, 0.0), sd=np.append(power.sd, 1.0))
    return replace(attribution, evidence=more).with_power(longer)


def test_a_gpu_whose_counter_does_not_tell_takes_the_others_powers_at_its_own_level(measured, log_lines) -> None:
    pipeline, attributions = measured
    told = [unexplained(one) if number == 2 else one for number, one in enumerate(attributions)]
    told[3] = with_one_unknown_more(told[3])
    law = np.array(errors(pipeline, told[2]))

    profile, blocking_power_w = merge_profiles([(0, one) for one in told], "live profile")

    merged = replace(told[2], curves={key: row for key, row in profile.curves.items() if key.stage == 2})
    assert np.sqrt(np.mean(law**2)) > 0.03
    assert np.sqrt(np.mean(np.square(errors(pipeline, merged)))) < 0.01
    assert blocking_power_w == pytest.approx(83.64, rel=0.03)
    assert "1 of 4 GPUs" in log_lines.text
    assert "[energy-borrowed]" in log_lines.text
    assert profile.source == "live profile, energies of 1 of 4 GPUs from the others"


def test_a_clock_that_the_others_have_not_run_has_the_power_between(measured) -> None:
    lost, other = unexplained(measured[1][0]), measured[1][1]
    between = replace(other, states=tuple((key, mhz - 5) for key, mhz in other.states))

    found, same = borrow(lost, [between]), borrow(lost, [other])

    assert found is not None
    assert same is not None
    powers = len(lost.states)
    assert found.power.values[:powers] == pytest.approx(same.power.values[:powers], rel=0.02)


def test_without_a_gpu_that_has_run_the_same_the_power_law_stays(measured, log_lines) -> None:
    lost, other = unexplained(measured[1][0]), measured[1][1]
    keys = tuple((key._replace(kind=Kind.WEIGHT_GRADIENT), mhz) for key, mhz in other.states)
    other_kinds = replace(other, states=keys)

    profile, _ = merge_profiles([(0, lost)], "live profile")

    assert borrow(lost, [other_kinds]) is None
    assert "1 of 1 GPUs" in log_lines.text
    assert "[energy-unknown]" in log_lines.text
    assert profile.source == "live profile, energies by the published power law"
    assert profile.curves == lost.curves


@pytest.mark.parametrize(("sd", "told"), [(0.1, "±20 %"), (0.02, "±4 %"), (0.012, "±2 %")])
def test_energies_that_are_hardly_known_are_named(measured, log_lines, sd: float, told: str) -> None:
    _, attributions = measured
    merge_profiles((0, one) for one in attributions)
    assert not log_lines.records

    vague = replace(attributions[0], evidence=replace(attributions[0].evidence, noise=1.0)).with_power(
        replace(attributions[0].power, sd=sd * attributions[0].power.values)
    )
    merge_profiles([(0, vague)])

    assert f"1 of 1 GPUs: energies of instructions are known to {told}" in log_lines.text
