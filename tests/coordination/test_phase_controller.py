"""The decision core, by histories: what all ranks said, and what they all decide."""

import itertools
import pickle

import pytest
from histories import SHORT, T_MIN_S, Job, phases
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_plans import MICROBATCHES, STAGES, route_of

from perseus_ds.coordination.events import (
    DriftFound,
    GuardStepped,
    IterationBegan,
    OrderPlaced,
    PhaseEntered,
    PlansAdopted,
    PlanSwitched,
    RoundHeard,
    StragglerChanged,
    StragglerPlansAdopted,
)
from perseus_ds.coordination.orders import Order
from perseus_ds.coordination.phases import Phase, Resumable
from perseus_ds.coordination.requests import (
    BeginProfiling,
    RescaleProfile,
    ResumePlans,
    RetraceIteration,
    SolveProfile,
    SolveStragglers,
)
from perseus_ds.messages import PerseusError


def test_a_job_warms_up_is_measured_profiled_planned_and_enforced():
    job = Job(**SHORT)
    job.runs(9, time_s=2.0)
    job.runs(1, time_s=1.5)
    job.runs(1, profiled=1.0)  # in iteration 10, said at the begin of 11, heard at the begin of 12
    job.runs(8)
    before = [Phase.WARMUP] * 2 + [Phase.BASELINE] * 2 + [Phase.PROFILING] * 8
    # After the sweep the clocks settle, one iteration is measured, and in the next the counter catches up.
    assert phases(job) == before + [Phase.BASELINE] * 3 + [Phase.SOLVING] * 2 + [Phase.ENFORCING] * 2
    entered = [(event.iteration, event.phase) for event in job.events(PhaseEntered)]
    assert entered == [
        (0, Phase.WARMUP),
        (2, Phase.BASELINE),
        (4, Phase.PROFILING),
        (12, Phase.BASELINE),
        (15, Phase.SOLVING),
        (17, Phase.ENFORCING),
    ]
    assert job.decisions[4].requests == (BeginProfiling(least_iteration_s=2.0, baseline=range(2, 4)),)
    assert job.decisions[15].requests == (SolveProfile(version=1, baseline=range(13, 14)),)
    assert job.requests(object) == [BeginProfiling(2.0, range(2, 4)), SolveProfile(1, range(13, 14))]
    assert [event.iteration for event in job.events(IterationBegan)] == list(range(19))


def test_profiling_lasts_until_the_last_rank_has_all_it_wants():
    job = Job(**SHORT)
    job.runs(20, profiled=1.0, of_rank={3: {"profiled": 0.0}})
    assert job.decisions[-1].phase is Phase.PROFILING
    job.runs(1, profiled=1.0)
    assert job.runs(2).phase is Phase.BASELINE
    assert job.runs(3).phase is Phase.SOLVING


def test_the_first_round_is_heard_with_what_was_in_force():
    job = Job(**SHORT).enforces()
    job.runs(2)
    heard = job.events(RoundHeard)
    assert [event.iteration for event in heard] == list(range(2, job.iteration))
    assert heard[0].plans == ()
    assert heard[0].t_prime_s != heard[0].t_prime_s
    assert heard[-1].plans == job.decisions[-1].plans
    assert heard[-1].t_prime_s == pytest.approx(T_MIN_S)


def test_plans_come_into_force_when_the_slowest_rank_holds_them_and_not_before():
    job = Job(lag=lambda rank: 7 if rank == 2 else 1, **SHORT)
    job.runs(6)
    job.runs(1, profiled=1.0)
    job.runs(12)
    assert job.decisions[11].requests == (SolveProfile(1, range(9, 10)),)
    assert job.held == [1, 1, 1, 1]
    # Asked for at 11, on the last rank at 18, said with the round that is heard at 19.
    assert phases(job)[11:] == [Phase.SOLVING] * 8
    assert job.runs().phase is Phase.ENFORCING
    adopted, switched = job.events(PlansAdopted), job.events(PlanSwitched)
    assert [(event.iteration, event.table.version, event.replaced) for event in adopted] == [(19, 1, None)]
    assert [(event.iteration, event.plans) for event in switched] == [(19, job.decisions[-1].plans)]


def test_a_straggler_is_answered_and_so_is_its_recovery():
    job = Job(**SHORT).enforces()
    begin = job.iteration
    job.runs(6, slow={(1, 0): 1.3})
    (changed,) = job.events(StragglerChanged)
    # Slow in `begin` and the one after, noticed when the second is heard of.
    assert (changed.iteration, changed.seen_iteration) == (begin + 3, begin + 1)
    assert changed.slowdowns == ((1.0, 1.0), (1.3, 1.0))
    assert changed.lasted == ((0, 0), (2, 0))
    assert changed.t_prime_s > T_MIN_S
    assert job.requests(SolveStragglers) == [SolveStragglers(2, ((0, (1.3, 1.0)),))]
    (adopted,) = job.events(StragglerPlansAdopted)
    assert adopted.straggler_plans.version == 2
    waiting, straggling = job.decisions[-1].plans
    own = route_of((1.3, 1.0))
    assert straggling in own.points
    assert waiting is route_of((1.0, 1.0)).point(changed.t_prime_s)

    recovers = job.iteration
    job.runs(3)
    assert [event.iteration for event in job.events(StragglerChanged)] == [begin + 3, recovers + 2]
    assert job.events(StragglerChanged)[1].slowdowns == ((1.0, 1.0), (1.0, 1.0))
    assert job.decisions[-1].plans == (route_of((1.0, 1.0)).points[0],) * 2


def test_plans_for_a_straggler_are_asked_for_once_and_kept_for_its_return():
    job = Job(lag=lambda rank: 12, **SHORT).enforces()
    for _ in range(2):
        job.runs(4, slow={(0, 1): 1.5})
        job.runs(2)
    assert len(job.requests(SolveStragglers)) == 1
    job.runs(20)
    job.runs(14, slow={(0, 1): 1.5})
    assert len(job.requests(SolveStragglers)) == 1
    assert job.decisions[-1].plans[0] in route_of((1.0, 1.5)).points


def test_a_drift_is_answered_once_until_its_plans_are_in_force():
    job = Job(straggler={"drift_iterations": 4}, lag=lambda rank: 10, **SHORT).enforces()
    everybody = {(pipeline, stage): 1.2 for pipeline in range(2) for stage in range(STAGES)}
    first = job.iteration
    job.runs(12, slow=everybody)
    assert [event.iteration for event in job.events(DriftFound)] == [first + 5]
    assert job.events(DriftFound)[0].factors == pytest.approx((1.2, 1.2))
    (request,) = job.requests(RescaleProfile)
    assert (request.version, request.factors) == (3, pytest.approx((1.2, 1.2)))  # 2 are the straggler plans
    job.runs(14)
    assert job.cores[0].table.version == 3
    job.runs(6, slow=everybody)
    assert len(job.requests(RescaleProfile)) == 2


def test_iterations_of_another_size_run_at_the_highest_clock_and_are_planned_anew():
    job = Job(lag=lambda rank: 3, **SHORT).enforces()
    begin = job.iteration
    job.runs(4, microbatches=5)
    job.runs(1)  # as before: the count begins anew
    assert job.decisions[-1].plans
    job.runs(4, microbatches=5)
    assert job.requests(RetraceIteration) == []
    job.runs(1, microbatches=5)
    assert job.requests(RetraceIteration) == [RetraceIteration(2)]
    job.runs(6, microbatches=5)
    planned = [event.planned for event in job.events(IterationBegan)[begin:]]
    assert planned == [False] * 4 + [True] + [False] * 8 + [True] * 3
    assert [bool(decision.plans) for decision in job.decisions[begin:]] == planned
    assert job.cores[0].table.microbatches == 5
    assert job.requests(RetraceIteration) == [RetraceIteration(2)]
    (_, replaced) = job.events(PlansAdopted)
    assert replaced.replaced.microbatches == MICROBATCHES


def test_another_size_again_counts_from_its_own_first_iteration():
    job = Job(**SHORT).enforces()
    for microbatches in (4, 5, 4, 5, 4, 5):
        job.runs(3, microbatches=microbatches)
    assert job.requests(RetraceIteration) == []
    job.runs(2, microbatches=5)
    assert len(job.requests(RetraceIteration)) == 1


def test_a_rank_that_has_failed_ends_it_on_all_ranks_and_is_named():
    job = Job(**SHORT).enforces()
    job.runs(1, of_rank={3: {"failed": 4.0}})
    job.runs(1)
    with pytest.raises(PerseusError, match="rank 3"):
        job.runs(1)


def test_where_clocks_are_not_set_nothing_is_profiled():
    job = Job(sets_clocks=False, **SHORT)
    job.runs(30, profiled=1.0)
    assert set(phases(job)) == {Phase.WARMUP, Phase.BASELINE}
    assert job.requests(object) == []


def test_with_a_known_profile_there_is_nothing_to_sweep_and_plans_are_observed_where_clocks_are_not_set():
    job = Job(sets_clocks=False, known=Resumable.PROFILE, **SHORT)
    job.runs(12)
    assert [type(request) for request in job.decisions[5].requests] == [BeginProfiling, SolveProfile]
    assert phases(job) == [Phase.WARMUP] * 2 + [Phase.BASELINE] * 3 + [Phase.SOLVING] * 2 + [Phase.OBSERVING] * 5
    assert not any(decision.plans for decision in job.decisions)
    assert job.events(IterationBegan)[-1].plans == (route_of((1.0, 1.0)).points[0],) * 2


def test_a_job_that_goes_on_asks_for_its_plans_before_its_first_iteration():
    job = Job(known=Resumable.ALL, **SHORT)
    job.runs(10)
    assert job.decisions[0].requests == (ResumePlans(1),)
    assert phases(job) == [Phase.SOLVING] * 2 + [Phase.ENFORCING] * 8
    assert job.requests(object) == [ResumePlans(1)]


def test_who_is_announced_is_slow_until_it_is_taken_back():
    job = Job(**SHORT)
    job.runs(1, orders={3: Order("straggler", 0, 1.4)})  # long before the first plans
    job.enforces()
    job.runs(4)
    (placed,) = job.events(OrderPlaced)
    assert (placed.iteration, placed.order) == (2, Order("straggler", 0, 1.4))
    (changed,), (adopted, _) = job.events(StragglerChanged), job.events((PlansAdopted, StragglerPlansAdopted))
    assert changed.slowdowns == ((1.4, 1.4), (1.0, 1.0))
    assert (changed.iteration, changed.seen_iteration) == (adopted.iteration, adopted.iteration - 1)
    assert job.decisions[-1].plans[1].time_s > T_MIN_S
    job.runs(1, orders={0: Order("straggler", 0, 1.0)})
    job.runs(2)
    assert job.events(StragglerChanged)[-1].slowdowns == ((1.0, 1.0), (1.0, 1.0))
    assert job.decisions[-1].plans[1] is route_of((1.0, 1.0)).points[0]


def test_stragglers_are_not_reacted_to_where_that_is_switched_off():
    job = Job(straggler={"enabled": False}, **SHORT).enforces()
    job.runs(10, slow={(0, 0): 1.5}, orders={1: Order("straggler", 1, 1.5)})
    assert job.events(StragglerChanged) == job.requests(SolveStragglers) == []


def test_an_iteration_time_that_the_plan_does_not_explain_is_met_with_caution():
    job = Job(**SHORT, baseline_every=0).enforces()
    job.runs(25, time_s=1.1 * T_MIN_S)
    (stepped,) = job.events(GuardStepped)
    assert stepped.caution == 0.5
    cautions = [decision.caution for decision in job.decisions]
    assert cautions[stepped.iteration - 1 : stepped.iteration + 1] == [0.0, 0.5]


def test_caution_is_nobody_s_business_where_no_clock_is_set():
    job = Job(sets_clocks=False, known=Resumable.PROFILE, **SHORT)
    job.runs(40, time_s=1.5 * T_MIN_S)
    assert job.cores[0].phase is Phase.OBSERVING
    assert job.events(GuardStepped) == []


iterations = st.fixed_dictionaries(
    {
        "iterations": st.integers(1, 6),
        "slow": st.dictionaries(
            st.tuples(st.integers(0, 1), st.integers(0, STAGES - 1)), st.sampled_from([1.1, 1.3]), max_size=2
        ),
        "microbatches": st.sampled_from([MICROBATCHES, MICROBATCHES, MICROBATCHES, 5]),
        "profiled": st.sampled_from([0.0, 1.0, 1.0]),
        "orders": st.dictionaries(
            st.integers(0, 3),
            st.builds(Order, st.just("straggler"), st.integers(0, 1), st.sampled_from([1.0, 1.2])),
            max_size=2,
        ),
    }
)


@settings(max_examples=150)
@given(
    st.lists(iterations, min_size=3, max_size=14),
    st.lists(st.integers(1, 9), min_size=4, max_size=4),
    st.sampled_from(Resumable),
    st.booleans(),
)
def test_whatever_happens_all_ranks_decide_alike_and_run_only_what_all_hold(history, lags, known, sets_clocks):
    job = Job(sets_clocks=sets_clocks, known=known, lag=lags.__getitem__, straggler={"drift_iterations": 4}, **SHORT)
    for part in history:
        job.runs(**part)  # ranks that decide apart fail in there

    asked = [request.version for request in job.requests(object) if not isinstance(request, BeginProfiling)]
    assert asked == list(range(1, len(asked) + 1)), "versions are counted without a gap"
    adopted = [
        (event.iteration, event.table.version if isinstance(event, PlansAdopted) else event.straggler_plans.version)
        for decision in job.decisions
        for event in decision.events
        if isinstance(event, PlansAdopted | StragglerPlansAdopted)
    ]
    assert [version for _, version in adopted] == list(range(1, len(adopted) + 1)), "and adopted in that order"
    assert all(version <= job.held_by_all[iteration] for iteration, version in adopted)
    in_force, microbatches = 0, [part["microbatches"] for part in history for _ in range(part["iterations"])]
    for iteration, decision in enumerate(job.decisions):
        in_force = max([in_force, *(version for at, version in adopted if at == iteration)])
        assert in_force == job.held_by_all[iteration], "what all hold is in force at once"
        assert not decision.plans or (sets_clocks and in_force), "no plan before the first table"
        (began,) = (event for event in decision.events if isinstance(event, IterationBegan))
        assert decision.plans == (began.plans if began.planned and decision.phase is Phase.ENFORCING else ())
    after_the_sweep = 0
    for before, after in itertools.pairwise(phases(job)):
        after_the_sweep += (before, after) == (Phase.PROFILING, Phase.BASELINE)
        comes_back = list(Phase).index(before) > list(Phase).index(after)
        assert comes_back <= (after is Phase.BASELINE), "after the sweep, and where it is refreshed"
        assert not comes_back or before in (Phase.PROFILING, Phase.ENFORCING)
    assert after_the_sweep <= 1
    sizes = [event.planned for event in job.events(IterationBegan)]
    assert all(microbatches[at] == MICROBATCHES or job.requests(RetraceIteration) for at, ok in enumerate(sizes) if ok)


def test_a_gpu_held_at_a_clock_is_answered_with_plans_for_its_ceiling():
    job = Job(**SHORT).enforces()
    begin = job.iteration
    job.runs(6, slow={(1, 0): 1.4}, of_rank={2: {"ceiling": -1000.0, "throttled_s": 0.1}})
    (changed,) = job.events(StragglerChanged)
    assert changed.iteration - begin == 2, "within three iterations"
    assert changed.slowdowns == ((1.0, 1.0), (-1000.0, 1.0))
    assert job.requests(SolveStragglers) == [SolveStragglers(2, ((0, (-1000.0, 1.0)),))]
    own = route_of((-1000.0, 1.0))
    waiting, straggling = job.decisions[-1].plans
    assert straggling in own.points
    assert changed.t_prime_s == pytest.approx(own.t_min_s)
    assert waiting is route_of((1.0, 1.0)).point(changed.t_prime_s)
    job.runs(3)
    assert job.events(StragglerChanged)[-1].slowdowns == ((1.0, 1.0), (1.0, 1.0))


def come_together_again(job: Job) -> None:
    """What a failure leaves on the ranks: one core for all, and nothing that was under way."""
    job.cores = [pickle.loads(pickle.dumps(job.cores[0])) for _ in job.cores]
    for core in job.cores:
        core.together_again(job.iteration)
    job._said = job._round = None
    job._coming = [[] for _ in job.ranks]
    job.held = [job.cores[0].version for _ in job.ranks]


def test_together_again_the_ranks_go_on_with_the_plan_and_ask_again_for_what_was_under_way():
    job = Job(**SHORT).enforces()
    job.lag = lambda rank: 50
    job.runs(6, slow={(0, 0): 1.5})
    (asked,) = job.requests(SolveStragglers)
    come_together_again(job)
    job.lag = lambda rank: 1
    again = job.iteration
    job.runs(6, slow={(0, 0): 1.5})
    assert job.requests(SolveStragglers) == [asked, asked]
    assert [event.phase for event in job.events(PhaseEntered) if event.iteration >= again] == [Phase.ENFORCING]
    assert all(decision.plans for decision in job.decisions[again:])
    assert job.events(StragglerPlansAdopted)


def test_together_again_without_plans_warm_up_and_baseline_begin_anew_and_orders_stay():
    job = Job(**SHORT)
    job.runs(4, orders={0: Order("straggler", 0, 1.3)})
    job.cores = [core.afresh(Resumable.NOTHING) for core in job.cores]
    come_together_again(job)
    assert phases(job)[-1:] == [Phase.BASELINE]
    job.runs(6)
    assert phases(job)[-6:] == [*[Phase.WARMUP] * 2, *[Phase.BASELINE] * 2, *[Phase.PROFILING] * 2]
    assert job.requests(BeginProfiling)[-1].baseline == range(4 + 2, 4 + 4)
    job.enforces()
    assert job.events(StragglerChanged)


def test_what_an_earlier_part_of_the_run_has_left_is_resumed():
    job = Job(**SHORT)
    job.runs(2)
    job.cores = [core.afresh(Resumable.ALL) for core in job.cores]
    come_together_again(job)
    job.runs(4)
    assert job.requests(object) == [ResumePlans(1)]
    assert phases(job)[-1] is Phase.ENFORCING
