"""What goes wrong in a job that trains: it loses nothing but time, and the plan comes back."""

import shutil
import signal
import time

import jobs
import pytest
from jobs import BUS_TIMEOUT_S

pytestmark = [
    pytest.mark.launch,
    pytest.mark.against_the_clock("a busy host delays ranks as a fault does"),
    pytest.mark.quiet_host,
    pytest.mark.parametrize("framework", ["deepspeed", "megatron"], scope="module"),
]
ITERATIONS = 500  # that are compared
PAUSE_S, FROZEN_S = 5 * BUS_TIMEOUT_S, 8.0
_run: dict[tuple[str, str, int], jobs.Job] = {}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    yield tmp_path_factory.mktemp("jobs")
    for job in _run.values():
        job.kill()


@pytest.fixture
def job(framework, directory, attempt):
    """A job with a plan in force, for one fault after the other."""
    key = framework, "first", attempt
    if key not in _run:
        _run[key] = jobs.by_hand(directory / f"{framework}-{attempt}", framework)
    _run[key].enforces()
    return _run[key]


@pytest.fixture
def requeued(framework, directory, job, attempt):
    """A job in the same run directory, started once the first one has been killed."""
    key = framework, "second", attempt
    if key not in _run:
        job.kill()
        _run[key] = jobs.by_hand(job.directory, framework)
    return _run[key]


@pytest.fixture(scope="module")
def losses_without(framework, directory):
    """The losses without Perseus, by iteration."""
    job = jobs.by_hand(directory / f"{framework}-without", framework, disable=True)
    job.until(lambda: job.at()[1] >= ITERATIONS, f"iteration {ITERATIONS}")
    job.stop()
    return job.losses()


def same_losses(job, without: list[str]) -> bool:
    """Whether they are those of the training without Perseus, bit by bit, as far as both went."""
    return all(one == other for one, other in zip(job.losses(), without, strict=False))


def since(begin_s: float, event: dict) -> str:
    return f"{max(event['time'] - begin_s, 0.0):.1f} s"


@pytest.mark.fault(
    "A rank pauses between two iterations for 5 × `bus_timeout_s`, as for a checkpoint that it alone writes",
    "all ranks pause with one message; the plan comes back without profiling",
)
def test_a_rank_pauses_between_iterations(job, recovered, losses_without):
    messages, begin_s = job.log().count("[paused]"), time.time()
    threads = [one.num_threads() for one in job.processes]
    job.order(f"pause 1 {PAUSE_S}")
    job.sees("paused", begin_s)
    job.has_reset_clocks()
    back = job.sees("rejoined", begin_s)
    iteration, ended_s = (job.directory / "paused").read_text().split()
    assert int(iteration) < back["iteration"] <= int(iteration) + 5
    for rank in range(2):
        job.until(lambda rank=rank: f"rank {rank}: iteration {back['iteration']}: is back" in job.log(), "both ranks")
    job.until(lambda: all(gpu.is_locked() for gpu in job.gpus()), "the plan's clocks")
    assert job.log().count("[paused]") == messages + 1
    assert not job.profiled(begin_s)

    def gives_back() -> bool:
        return all(one.num_threads() <= before + 2 for one, before in zip(job.processes, threads, strict=True))

    job.until(gives_back, "the end of the old bus's threads")
    assert same_losses(job, losses_without)
    recovered(f"{back['iteration'] - int(iteration)} iterations, {since(float(ended_s), back)}")


@pytest.mark.fault("A rank is stopped for 8 s within an iteration", "the plan is in force, or comes back by itself")
def test_a_rank_is_stopped_within_an_iteration(job, recovered, losses_without):
    process, iteration = job.at(1)
    begin_s = time.time()
    jobs.freeze(next(one for one in job.processes if one.pid == process), FROZEN_S)
    ended_s = time.time()
    job.until(lambda: job.at()[1] >= iteration + 8, "more iterations")
    if job.events("paused", begin_s):
        back = job.sees("rejoined", begin_s)
        recovered(since(ended_s, back))
    else:
        recovered("0 s: the plan stays in force")
    assert "[switched-off]" not in job.log()
    assert same_losses(job, losses_without)


@pytest.mark.fault("An error of Perseus on one rank", "all ranks pause; that rank measures anew; the plan comes back")
def test_an_error_of_ours(job, recovered, losses_without):
    begin_s = time.time()
    job.order("break 1")
    lost = job.sees("paused", begin_s)
    recovered(since(lost["time"], job.sees("rejoined", begin_s)))
    job.goes_on()
    assert same_losses(job, losses_without)


@pytest.mark.fault("A clock keeper is killed", "its GPU runs at its default clocks until another keeper has started")
def test_a_keeper_is_killed(job, recovered, losses_without):
    begin_s = time.time()
    job.keepers()[0].kill()
    job.sees("keepers", begin_s, missing=1)
    recovered(since(begin_s, job.sees("keepers", begin_s, missing=0)))
    job.until(lambda: len(job.keepers()) == 2, "both keepers")
    assert same_losses(job, losses_without)


@pytest.mark.fault(
    "SIGTERM with a grace period: the trainers save a checkpoint, then all processes are killed at once",
    "the clocks are reset first, and stay so",
)
def test_sigterm_with_a_grace_period(job, recovered):
    job.goes_on()
    job.until(lambda: any(gpu.is_locked() for gpu in job.gpus()), "clocks")
    begin_s = time.time()
    jobs.send(job.processes, signal.SIGTERM)
    job.has_reset_clocks()
    took_s = time.time() - begin_s
    assert took_s < 2.0
    time.sleep(1.5)
    assert job.alive(), "the trainers still save their checkpoint"
    assert job.has_reset_clocks()
    job.kill()
    assert job.has_reset_clocks()
    recovered(f"clocks reset after {took_s:.2f} s")


@pytest.mark.fault(
    "The job is queued again (SLURM) and goes on in the same run directory",
    "nothing is profiled again; the plan is in force once the warm-up is over",
)
def test_the_job_is_queued_again(requeued, recovered):
    begin_s = requeued.begins(requeued.processes[0].create_time())
    plan = requeued.enforces(begin_s)
    assert not requeued.profiled(begin_s)
    recovered(f"{since(begin_s, plan)} after its first iteration")


@pytest.mark.fault("The run directory is removed in mid-run", "one line at the end; the plan stays in force")
def test_the_run_directory_is_removed(requeued, recovered, losses_without):
    requeued.gpu_dir = requeued.gpu_dir.rename(requeued.directory / "gpus")  # the simulated GPUs themselves
    shutil.rmtree(requeued.run_dir)
    requeued.goes_on(30)
    assert any(gpu.is_locked() for gpu in requeued.gpus())
    requeued.stop()
    assert "Traceback" not in requeued.log()
    assert same_losses(requeued, losses_without)
    recovered("0 s: the plan stays in force")
