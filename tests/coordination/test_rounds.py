"""What a pipeline makes of its ranks' floats, and what all ranks read in the result."""

from dataclasses import fields, replace

import numpy as np
import pytest

from perseus_ds.coordination.orders import Order
from perseus_ds.coordination.rounds import RankStatus, RoundResult, condense, condensed_width

STAGES, SHARDS = 2, 2
HEALTHY = RankStatus(7, 1.0, 100.0, version=3, profiled=1.0, share_at_clock=1.0)


def heard(*pipelines: list[RankStatus]) -> RoundResult:
    """The round of pipelines, each of which has a list of ranks: by stage, then tensor rank."""
    return RoundResult(
        np.array([condense(np.array([one.row() for one in ranks]), STAGES) for ranks in pipelines]), STAGES
    )


def ranks(**of_third: float) -> list[RankStatus]:
    """A pipeline of four ranks; the third is the first of the second stage."""
    return [HEALTHY, HEALTHY, replace(HEALTHY, **of_third), HEALTHY]


def test_a_row_has_a_float_for_each_field_in_order():
    values = [float(number) for number in range(len(fields(RankStatus)))]
    assert RankStatus(*values).row() == tuple(values)


def test_a_pipeline_is_one_row_whatever_its_number_of_ranks():
    row = condense(np.array([one.row() for one in ranks()]), STAGES)
    assert row.shape == (condensed_width(STAGES),)
    assert condensed_width(STAGES + 1) == condensed_width(STAGES) + 3


@pytest.mark.parametrize(
    ("field", "of_one", "of_all"),
    [
        ("energy_j", 50.0, 350.0),
        ("switches", 5.0, 5.0),
        ("late_switches", 2.0, 2.0),
        ("share_at_clock", 0.5, 0.5),
        ("version", 2.0, 2.0),
        ("profiled", 0.0, 0.0),
        ("iteration_time_s", 1.5, 1.125),  # a mean: all take equally long on average
        ("failed", 4.0, 4.0),
        ("waited_s", 0.3, 0.3),
    ],
)
def test_what_one_rank_says_counts_for_its_pipeline(field, of_one, of_all):
    assert heard(ranks(**{field: of_one}), ranks()).field(field)[0] == of_all


def test_sums_add_up_over_ranks():
    everybody = [replace(HEALTHY, switches=2.0, late_switches=1.0)] * 4
    result = heard(everybody, everybody)
    assert result.field("switches").tolist() == [8.0, 8.0]
    assert result.field("late_switches").tolist() == [4.0, 4.0]


def test_what_is_kept_by_stage_is_of_the_slowest_rank_that_shares_it():
    result = heard(ranks(), ranks(slowdown=1.4, throttled_s=0.2))
    assert result.slowdowns.tolist() == [[1.0, 1.0], [1.0, 1.4]]
    assert result.throttled.tolist() == [[False, False], [False, True]]


def test_a_rank_without_news_leaves_its_stage_to_the_others_that_share_it():
    silent = replace(HEALTHY, slowdown=np.nan)
    result = heard([silent, replace(HEALTHY, slowdown=1.4), silent, silent])
    assert result.slowdowns.tolist() == [[1.4, pytest.approx(np.nan, nan_ok=True)]]


def test_the_lowest_ceiling_among_the_ranks_that_share_a_stage_counts():
    first, second, third, last = ranks(ceiling=-1200.0)
    result = heard(ranks(), [first, second, third, replace(last, ceiling=-1100.0)])
    assert result.ceilings_mhz.tolist() == [[0.0, 0.0], [0.0, 1100.0]]


def test_what_all_pipelines_say_together():
    result = heard(ranks(iteration_time_s=1.2, version=2.0, energy_j=40.0), ranks(iteration_time_s=1.1))
    assert result.iteration == 7
    assert result.iteration_time_s == pytest.approx((1.2 + 1.1 + 6 * 1.0) / 8)
    assert result.version == 2
    assert result.pipeline_energy_j == (340.0 + 400.0) / 2
    assert result.failed_rank is None
    assert heard(ranks(), ranks(failed=6.0)).failed_rank == 5


def test_an_energy_that_one_rank_does_not_know_is_not_known():
    assert np.isnan(heard(ranks(energy_j=float("nan")), ranks()).pipeline_energy_j)


def ordered(**of_rank: Order) -> list[RankStatus]:
    return [HEALTHY.with_order(of_rank[name]) if name in of_rank else HEALTHY for name in "abcd"]


def test_a_round_carries_an_order_of_each_pipeline():
    slow, slower, over = (Order("straggler", 1, value) for value in (1.2, 1.5, 1.0))
    other = Order("straggler", 0, 1.3)
    assert heard(ordered(), ordered()).orders == []
    assert heard(ordered(c=slow), ordered()).orders == [slow]
    assert heard(ordered(d=other), ordered(b=slow)).orders == [other, slow]
    assert heard(ordered(a=slow), ordered(b=slow)).orders == [slow]
    assert heard(ordered(a=slower), ordered(d=over)).orders == [over, slower], "the strongest has the last word"


def test_of_several_orders_in_a_pipeline_one_goes_on():
    first, second = Order("straggler", 0, 1.2), Order("straggler", 1, 1.1)
    assert heard(ordered(a=first, b=second), ordered()).orders == [second]
