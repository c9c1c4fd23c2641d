"""Whatever goes wrong, the training's own behaviour is as without Perseus, and the clocks end reset."""

import signal

import pytest
from small_job import BUS_TIMEOUT_S, RANKS, Job
from small_trainer import ITERATIONS

pytestmark = pytest.mark.against_the_clock("a busy host delays ranks as a fault does")


@pytest.fixture
def start(tmp_path):
    jobs = []

    def start(*fault, iterations=ITERATIONS, **settings):
        jobs.append(Job(tmp_path / f"job{len(jobs)}", iterations, fault, settings=settings))
        return jobs[-1]

    yield start
    for job in jobs:
        job.kill()


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """The weights that the training comes to without Perseus, by rank."""
    job = Job(tmp_path_factory.mktemp("without") / "job", ITERATIONS, (), disable=True)
    assert job.wait() == [0] * RANKS, job.log()
    return [result["digest"] for result in job.results()]


def trained_as_without(job, without) -> bool:
    return [result["digest"] for result in job.results()] == without


def test_a_plan_is_enforced_to_the_end_though_a_rank_is_frozen_for_a_while(start, without):
    job = start(iterations=0)
    job.freeze(3, 1.5)
    job.says("enforcing")
    assert job.stop() == [0] * RANKS, job.log()
    assert trained_as_without(job, without)
    assert all(result["on"] for result in job.results()), job.log()
    events = (job.directory / "run" / "events.jsonl").read_text()
    assert '"enforcing"' in events
    assert job.clocks_are_reset()


@pytest.mark.parametrize("fault", [("coordinator", 0), ("rounding", 3), ("damage", 1), ("error", 2)])
def test_an_error_of_ours_turns_perseus_off_on_all_ranks_and_nothing_else(start, without, fault):
    job = start(*fault, iterations=0, rejoin={"attempts": 0})
    job.says("[switched-off]")
    job.is_off(*range(RANKS))
    assert job.stop() == [0] * RANKS, job.log()
    assert trained_as_without(job, without)
    assert not any(result["on"] for result in job.results()), job.log()
    assert max(result["longest_s"] for result in job.results()) < BUS_TIMEOUT_S
    assert job.clocks_are_reset()


def test_an_error_of_ours_that_does_not_come_again_is_survived(start, without):
    job = start("error", 2, iterations=0)
    back = job.sees("rejoined")
    job.sees("phase", lambda event: event["phase"] == "enforcing" and event["iteration"] >= back["iteration"])
    job.reaches(0, ITERATIONS)
    assert job.stop() == [0] * RANKS, job.log()
    assert trained_as_without(job, without)
    assert all(result["on"] for result in job.results()), job.log()
    assert job.log().count("[paused]") == 1
    assert job.clocks_are_reset()


def test_a_rank_that_the_bus_does_not_hear_costs_the_time_out_and_no_more(start, without):
    job = start("silence", 2, iterations=0, rejoin={"attempts": 0})
    job.says("[switched-off]")
    job.is_off(0, 1, 3)
    assert job.stop() == [0] * RANKS, job.log()
    assert trained_as_without(job, without)
    assert not any(result["on"] for rank, result in enumerate(job.results()) if rank != 2), job.log()
    assert max(result["longest_s"] for result in job.results()) < 2 * BUS_TIMEOUT_S
    assert "bus_timeout_s" in job.log()
    assert job.clocks_are_reset()


def test_a_rank_that_is_killed_ends_the_job_as_it_does_without(start):
    job = start("kill", 3)
    codes = job.wait(timeout_s=90.0)
    assert codes[3] == -signal.SIGKILL
    assert all(code != 0 for code in codes), job.log()
    assert job.clocks_are_reset()


def test_a_rank_that_is_frozen_beyond_the_time_out_delays_the_training_and_no_more(start, without):
    job = start()
    job.freeze(3, 2.5 * BUS_TIMEOUT_S)
    assert job.wait() == [0] * RANKS, job.log()
    assert trained_as_without(job, without)
    assert job.clocks_are_reset()
