"""A rank that is alone in its job and observes: the whole of Perseus on it but the network."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from perseus_ds.config import Config, ReportConfig
from perseus_ds.coordination.orders import OrderBox
from perseus_ds.coordination.phase_controller import PhaseController
from perseus_ds.coordination.plan_channel import PlanChannel
from perseus_ds.coordination.rounds import condense
from perseus_ds.pipeline.events import Topology
from perseus_ds.runtime.meter import RankMeter
from perseus_ds.runtime.request_executor import RequestExecutor
from perseus_ds.runtime.session import RankSession
from perseus_ds.silicon.lab import Lab

__all__ = ["observing"]

_ALONE = Topology(0, 1, 0, 1, 0, 1, framework="gpu-check")


class _LoneBus:
    """A bus with nobody else on it: each round is over at once."""

    def post(self, row: np.ndarray) -> Future[np.ndarray]:
        over: Future[np.ndarray] = Future()
        over.set_result(condense(np.array([row]), stages=1)[None])
        return over

    def close(self) -> None:
        pass


@contextmanager
def observing(lab: Lab, directory: Path) -> Iterator[RankSession]:
    """Attach a session to a lab's GPU.

    Args:
        lab: The lab.
        directory: The run directory.
    """
    config = Config(run_dir=directory, mode="observe", report=ReportConfig(energy_every=0))
    bus: Any = _LoneBus()
    meter = RankMeter(lab.rank_gpu(config, _ALONE), _ALONE)
    executor = RequestExecutor(config, PlanChannel(bus, None, 1), meter, 0.0)
    session = RankSession(config, bus, meter, PhaseController(config, 1, 1, False), executor, OrderBox())
    try:
        yield session
    finally:
        session.close()
