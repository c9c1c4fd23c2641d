"""Latencies of all ranks: the usual ones, and a tail found among those of few switches to each clock."""

from math import inf

import numpy as np
import pytest

from perseus_ds.profiling.latencies import Bounds, latency_spread, usual_latencies_s, usual_latency_s


def exact(*latencies_s: float) -> list[Bounds]:
    return [(one_s, one_s) for one_s in latencies_s]


def latencies_s(share: float, tail_s: float, per_clock: int = 3, spread: float = 0.3) -> list[dict[int, list[Bounds]]]:
    """What four ranks see of switches to thirty clocks, each with a latency of its own from 20 to 200 ms."""
    draw, typical_s = np.random.default_rng(2), np.linspace(0.02, 0.2, 30)
    ranks = []
    for _ in range(4):
        usual_s = typical_s[:, None] * (1 + spread * draw.uniform(-1, 1, (30, per_clock)))
        late_s = draw.exponential(tail_s, usual_s.shape) * (draw.random(usual_s.shape) < share)
        ranks.append({mhz: exact(*some) for mhz, some in zip(range(900, 1200, 10), usual_s + late_s, strict=True)})
    return ranks


@pytest.mark.parametrize(("share", "tail_s"), [(0.05, 0.15), (0.02, 0.3)])
def test_share_and_length_are_found_though_part_of_the_tail_hides_in_the_spread(share, tail_s):
    found = latency_spread(latencies_s(share, tail_s, per_clock=20))
    assert found.tail_share == pytest.approx(share, rel=0.3)
    assert found.tail_s == pytest.approx(tail_s, rel=0.2)


def test_what_a_tail_adds_on_average_shows_in_one_sweep():
    found = latency_spread(latencies_s(0.05, 0.15))
    assert found.tail_share * found.tail_s == pytest.approx(0.05 * 0.15, rel=0.5)


def test_a_spread_alone_is_no_tail():
    found = latency_spread(latencies_s(0.0, 1.0))
    assert (found.tail_share, found.tail_s) == (0.0, 0.0)
    assert found.jitter_s == pytest.approx(0.11 * 0.3 / 3**0.5, rel=0.2)
    assert latency_spread(latencies_s(0.0, 1.0, spread=0.0)).jitter_s < 0.001


def test_without_evidence_the_jitter_is_a_usual_one():
    assert latency_spread([]) is None
    assert latency_spread([{900: []}]) is None
    found = latency_spread([{900: [(0.0, 0.1)]}])
    assert found.jitter_s == pytest.approx(0.1 * 0.05, rel=0.1)
    assert (found.tail_share, found.tail_s) == (0.0, 0.0)
    assert found.doubt_s == pytest.approx(0.5 * 0.05, rel=0.3), "a clock's latency may be half of it, or twice"


def test_ranks_count_together():
    found = latency_spread([{900: exact(0.0095)}, {900: exact(0.0105, 0.0100)}, {900: exact(0.0102, 0.110)}])
    assert (found.tail_share, found.tail_s) == (pytest.approx(0.15, rel=0.3), pytest.approx(0.1, rel=0.5))


def seen(requests: int, renewed_s: float) -> tuple[dict[int, list[Bounds]], dict[int, float]]:
    """Instructions tell of a third of the clocks, waits end at some time, and readings may be old."""
    draw, found = np.random.default_rng(5), {}
    usually_s = dict(zip(range(900, 1200, 10), np.linspace(0.02, 0.2, 30), strict=True))
    for mhz, usual_s in usually_s.items():
        true_s = usual_s * draw.normal(1.0, 0.1, requests)
        true_s += draw.exponential(0.15, requests) * (draw.random(requests) < 0.05)
        until_s = draw.uniform(0.0, 0.4, requests) * (draw.random(requests) < 0.6)
        shown_s = renewed_s * draw.random(requests)
        shown_s += renewed_s * np.ceil((true_s - shown_s) / renewed_s) if renewed_s else true_s
        told = [
            (0.0, wait_s) if one_s < wait_s else (one_s, one_s) for one_s, wait_s in zip(true_s, until_s, strict=True)
        ]
        read = [(max(0.0, one_s - renewed_s), one_s) for one_s in shown_s]
        found[mhz] = [*told, *read] if renewed_s else told
    return found, usually_s


@pytest.mark.parametrize("renewed_s", [0.0, 0.1])
def test_jitter_and_tail_are_found_where_most_clocks_come_in_waits(renewed_s):
    spread = latency_spread([seen(40, renewed_s)[0]])
    assert spread.jitter_s == pytest.approx(0.11 * 0.1, rel=0.25)
    assert spread.tail_share == pytest.approx(0.05, rel=0.4)
    assert spread.tail_s == pytest.approx(0.15, rel=0.3)


@pytest.mark.parametrize("requests", [10, 40])
@pytest.mark.parametrize("renewed_s", [0.0, 0.1])
def test_the_doubt_is_how_far_off_usual_latencies_are(requests, renewed_s):
    found, true_s = seen(requests, renewed_s)
    usual_s = usual_latencies_s([found])
    off_s = float(np.sqrt(np.mean([(usual_s[mhz] - one_s) ** 2 for mhz, one_s in true_s.items()])))
    assert latency_spread([found]).doubt_s == pytest.approx(off_s, rel=0.35)


def test_latencies_that_are_all_alike_leave_no_doubt():
    assert latency_spread(latencies_s(0.0, 1.0, per_clock=20, spread=0.0)).doubt_s < 0.001


def test_the_usual_latency_is_the_median_of_all_ranks_and_of_two_the_one_that_is_like_other_clocks():
    ranks = [{900: exact(0.1)}, {900: exact(0.12, 0.4), 1200: exact(0.02, 0.3), 1100: exact(0.05), 1400: []}]
    assert usual_latencies_s(ranks) == {900: 0.12, 1200: pytest.approx(0.11), 1100: 0.05}
    assert usual_latencies_s([{900: []}]) == {}


@pytest.mark.parametrize("true_s", [0.014, 0.113])
def test_readings_that_are_renewed_rarely_tell_a_latency_together(true_s):
    shown_s = 0.1 * np.random.default_rng(3).random(40)  # from the request to when readings are renewed
    bounds = [(max(0.0, most_s - 0.1), most_s) for most_s in true_s + (shown_s - true_s) % 0.1]
    assert usual_latency_s(bounds, 0.06) == pytest.approx(true_s, abs=0.006)


def test_what_came_before_a_time_or_never_in_another_tells_too():
    assert usual_latency_s([(0.0, 0.02), (0.0, 0.03)], 0.05) == 0.02
    assert usual_latency_s([(0.08, inf), (0.09, inf)], 0.05) == 0.09
    assert usual_latency_s([(0.08, inf)], 0.05, requests=1) == 0.05


def test_jitter_is_what_is_left_once_every_clock_has_its_own_latency():
    draw = np.random.default_rng(7)
    late_s = np.where(np.arange(50) % 10, 0.0, 0.4)  # now and then the power limit holds a clock back
    told = {mhz: exact(*(usual_s * draw.normal(1.0, 0.1, 50) + late_s)) for mhz, usual_s in ((900, 0.05), (1400, 0.01))}
    assert latency_spread([told]).jitter_s == pytest.approx(0.1 * (0.05 + 0.01) / 2, rel=0.3)


def test_a_latency_far_from_all_others_needs_two_requests_that_tell_it():
    """Seen on a simulated H200: 0.26 s, where 0.02 s are true."""
    others = {mhz: exact(0.015, 0.016) for mhz in range(900, 1200, 100)}
    vacuous = (0.0, inf)
    assert usual_latencies_s([others, {1900: [(0.25, 0.26), vacuous]}])[1900] < 0.02
    assert usual_latencies_s([others, {1900: [(0.25, 0.26), (0.26, 0.27), vacuous]}])[1900] == 0.25
