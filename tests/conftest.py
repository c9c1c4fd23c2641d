"""A real run, made once for all tests, on all workers, that look at what a run leaves behind; and the log."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import launching
import pytest
from by_hand import by_hand
from filelock import FileLock
from hypothesis import settings

from perseus_ds.console import log

# A property test may take its time: shared machines stall.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")

# The second file goes to the second worker; the third follows the first, as that has two tests only.
_FIRST = ("test_stragglers", "test_baselines", "test_demo")
_LAST = "test_faults"  # four ranks, as many as test_changes: not beside it


def pytest_collection_modifyitems(items) -> None:
    """Order the tests so that two cores serve them well, and say which may be tried again.

    Predicted times are compared with real ones first, on one worker, while the other has what trains nothing. Tests
    that say why they are ``against_the_clock``, and those that launch a training on cores they share, have two more
    tries, shown as R, a while later. Those for a ``quiet_host`` are skipped where nobody says that this is one.
    """
    for item in items:
        if item.get_closest_marker("quiet_host") and "PERSEUS_DS_QUIET_HOST" not in os.environ:
            item.add_marker(pytest.mark.skip("no PERSEUS_DS_QUIET_HOST"))
        clock = item.get_closest_marker("against_the_clock")
        assert clock is None or clock.args, f"{item.nodeid}: say why it is against the clock"
        if clock or item.get_closest_marker("launch"):
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=10))
    items.sort(key=_turn)


def _turn(item) -> int:
    if item.path.stem in _FIRST:
        return _FIRST.index(item.path.stem)
    trains = item.get_closest_marker("launch") is not None or item.path.parent.name == "faults"
    return len(_FIRST) + trains + (item.path.stem == _LAST)


@pytest.fixture
def attempt(request) -> int:
    """How many times the test was begun: a job that several tests look at is trained anew for one tried again."""
    return getattr(request.node, "execution_count", 1)


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """A test that has the log shown leaves the logger to the next one as it was."""
    handlers, level, propagate = log.handlers[:], log.level, log.propagate
    yield
    log.handlers[:], log.propagate = handlers, propagate
    log.setLevel(level)


@pytest.fixture
def log_lines(caplog, _own_logging) -> pytest.LogCaptureFixture:
    """What perseus_ds logs, as a program that handles its logger itself gets it."""
    log.handlers[:] = [caplog.handler]
    log.setLevel("INFO")
    log.propagate = False
    return caplog


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory, worker_id) -> Path:
    """The run directory of a real DeepSpeed training of two stages, with every metric sink switched on."""
    own = tmp_path_factory.getbasetemp()
    directory = (own if worker_id == "master" else own.parent) / "finished"
    with FileLock(f"{directory}.lock"):
        if not (directory / "output.txt").exists():
            directory.mkdir(exist_ok=True)
            _run_to_the_end(directory)
    return directory / "run"


def _run_to_the_end(directory: Path) -> None:
    config = launching.write_config(directory, report={"prometheus_textfile": str(directory / "perseus.prom")})
    ds_config = json.loads(launching.DS_CONFIG.read_text())
    ds_config["tensorboard"] = {"enabled": True, "output_path": str(directory / "tensorboard"), "job_name": "job"}
    (directory / "ds_config.json").write_text(json.dumps(ds_config))
    arguments = ("--perseus", config, "--deepspeed_config", directory / "ds_config.json", "--steps", 60)
    done = by_hand(2, "-m", "perseus_ds", "run", launching.TRAIN, *arguments)
    assert done.returncode == 0, done.stdout
    (directory / "output.txt").write_text(done.stdout)
