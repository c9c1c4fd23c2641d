"""A virtual GPU's time, and the one that most tests look at."""

import time

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey, ProfilePoint
from perseus_ds.simulator.gpu import GpuSpec

FAST, SLOW = 1400, 700
CURVE = {CurveKey(0, Kind.FORWARD): [ProfilePoint(FAST, 0.1, 30.0), ProfilePoint(SLOW, 0.2, 20.0)]}
SPEC = GpuSpec(clocks_mhz=(FAST, SLOW), blocking_power_w=80.0, switch_latency_s=0.01, counter_period_s=0.05)


class VirtualTime:
    """A clock that only moves when told."""

    def __init__(self):
        self.now_s = time.monotonic()

    def __call__(self):
        return self.now_s

    def pass_s(self, seconds):
        self.now_s += seconds
