"""Attribution in a process of its own."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from test_energy import training

from perseus_ds.messages import PerseusError
from perseus_ds.profiling.energy import attribute
from perseus_ds.profiling.worker import AttributionWorker


def test_the_process_answers_as_the_function_does() -> None:
    worker = AttributionWorker()
    spans, samples = training()

    twice = [worker.attribute(spans, samples), worker.attribute(spans, samples, 0.012)]
    worker.close()

    for found, latency_s in zip(twice, (0.0, 0.012), strict=True):
        here = attribute(spans, samples, latency_s)
        assert found.states == here.states
        assert found.instances == here.instances
        # The second time it begins with the window that it found the first time.
        assert np.allclose(found.power.values[:4], here.power.values[:4], rtol=2e-3)


def test_a_counter_that_told_nothing_is_the_same_error() -> None:
    worker = AttributionWorker()
    spans, samples = training(iterations=5)

    with pytest.raises(PerseusError, match="too few readings of the energy counter: 2 updates"):
        worker.attribute(spans, samples[:2])
    assert worker.attribute(*training()).states
    worker.close()


def test_without_its_process_the_work_is_done_here() -> None:
    worker = AttributionWorker()
    spans, samples = training()
    worker.attribute(spans, samples)
    assert worker._process is not None
    os.kill(worker._process.pid, signal.SIGKILL)
    worker._process.wait()

    assert worker.attribute(spans, samples).states
    worker.close()


def test_the_process_ends_with_its_parent() -> None:
    parent = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, signal\n"
            "from perseus_ds.profiling.worker import AttributionWorker\n"
            "worker = AttributionWorker()\n"
            "try:\n"
            "    worker.attribute([], [])\n"
            "except Exception as error:\n"
            "    print(worker._process.pid, flush=True)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # The worker's stderr is the pipe that run() reads to its end: it has returned, so the worker is gone.
    assert parent.returncode == -signal.SIGKILL
    assert int(parent.stdout) > 0
    assert "Traceback" not in parent.stderr
