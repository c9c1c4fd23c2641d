"""Latencies of all ranks: the usual ones, and a tail found among those of few switches to each clock."""

import numpy as np
import pytest

from perseus_ds.profiling.latencies import switch_tail, usual_latencies_s


def latencies_s(share: float, tail_s: float, per_clock: int = 3, spread: float = 0.3) -> list[dict[int, list[float]]]:
    """What four ranks see of switches to thirty clocks, each with a latency of its own from 20 to 200 ms."""
    draw, typical_s = np.random.default_rng(2), np.linspace(0.02, 0.2, 30)
    ranks = []
    for _ in range(4):
        usual_s = typical_s[:, None] * (1 + spread * draw.uniform(-1, 1, (30, per_clock)))
        late_s = draw.exponential(tail_s, usual_s.shape) * (draw.random(usual_s.shape) < share)
        ranks.append(dict(zip(range(900, 1200, 10), (usual_s + late_s).tolist(), strict=True)))
    return ranks


@pytest.mark.parametrize(("share", "tail_s"), [(0.05, 0.15), (0.02, 0.3)])
def test_share_and_length_are_found_though_part_of_the_tail_hides_in_the_spread(share, tail_s):
    found_share, found_s = switch_tail(latencies_s(share, tail_s, per_clock=20))
    assert found_share == pytest.approx(share, rel=0.3)
    assert found_s == pytest.approx(tail_s, rel=0.2)


def test_what_a_tail_adds_on_average_shows_in_one_sweep():
    share, tail_s = switch_tail(latencies_s(0.05, 0.15))
    assert share * tail_s == pytest.approx(0.05 * 0.15, rel=0.5)


def test_a_spread_alone_is_no_tail_worth_the_name():
    share, tail_s = switch_tail(latencies_s(0.0, 1.0))
    assert share * tail_s < 1e-4
    assert switch_tail(latencies_s(0.0, 1.0, spread=0.0)) == (0.0, 0.0)


def test_clocks_that_were_seen_once_or_twice_tell_nothing():
    assert switch_tail([{900: [0.01, 0.3]}]) == (0.0, 0.0)
    assert switch_tail([]) == (0.0, 0.0)


def test_ranks_count_together():
    share, tail_s = switch_tail([{900: [0.0095]}, {900: [0.0105, 0.0100]}, {900: [0.0102, 0.110]}])
    assert (share, tail_s) == (pytest.approx(0.2, rel=0.1), pytest.approx(0.1, rel=0.1))


def test_the_hidden_part_is_at_most_as_large_as_the_seen_one():
    # One latency is hardly out of the ordinary: an exponential through it alone would hide nearly all of itself.
    share, _ = switch_tail([{900: [0.09, 0.10, 0.10, 0.11, 0.1601]}])
    assert share == pytest.approx(2 / 5)


def test_the_usual_latency_is_the_median_and_of_two_the_shorter_one():
    ranks = [{900: [0.1], 1200: [0.05]}, {900: [0.12, 0.4], 1200: [0.02], 1400: []}]
    assert usual_latencies_s(ranks) == {900: 0.12, 1200: 0.02}
