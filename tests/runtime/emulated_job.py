"""A pipeline on GPUs in virtual time: real frequency controllers ask for a plan's clocks, which come as drawn."""

import random
from collections import deque
from collections.abc import Mapping

import numpy as np

from perseus_ds.device.pending import PendingRequests
from perseus_ds.device.protocol import Request
from perseus_ds.frontier import Plan, Problem
from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.profiling.recorder import IterationToken
from perseus_ds.runtime.frequency_controller import FrequencyController

LIKE = 3  # iterations whose median begins are expected


class Gpu:
    """One stage's GPU, with its keeper and its controller.

    Args:
        mhz: Its clock at first.
        problem: Its profile tells the usual latencies, their tail, and for how long a request lets the GPU stand still.
        draw: Of latencies, which are up to 30 % off, and of the tail.
    """

    def __init__(self, mhz: int, problem: Problem, draw: random.Random) -> None:
        self.now_s, self.mhz, self._profile, self._draw = 0.0, mhz, problem.profile, draw
        self._asked_mhz = mhz
        self._pending = PendingRequests()
        self._coming: deque[tuple[float, int]] = deque()
        self.controller = FrequencyController(self._ask, self._profile.switch_latency_s.__getitem__, lambda: self.now_s)

    def _ask(self, mhz: int, due_s: float) -> None:
        self._pending.add(Request(mhz, self.now_s, due_s))
        self._take()

    def _take(self) -> bool:
        """Let the driver take what is due; return whether that was a change."""
        if (request := self._pending.due(self.now_s)) is None:
            return False
        self._pending.settle()
        if request.mhz == self._asked_mhz:
            return False
        self._asked_mhz = request.mhz
        late_s = self._profile.switch_latency_s[request.mhz] * self._draw.uniform(0.7, 1.3)
        if self._draw.random() < self._profile.switch_tail_share:
            late_s += self._draw.expovariate(1.0 / self._profile.switch_tail_s)
        behind_s = self._coming[-1][0] if self._coming else 0.0
        self._coming.append((max(self.now_s + late_s, behind_s), request.mhz))
        return True

    def wait(self, until_s: float) -> None:
        while self._pending.due_s <= until_s:
            self.now_s = max(self.now_s, self._pending.due_s)
            self._take()
        self.now_s = until_s

    def work(self, takes_s: Mapping[int, float]) -> None:
        """Run an instruction, given its time at each clock."""
        left = 1.0
        while left > 1e-12:
            while self._coming and self._coming[0][0] <= self.now_s:
                self.mhz = self._coming.popleft()[1]
            ends_s = self.now_s + left * takes_s[self.mhz]
            next_s = min(ends_s, self._coming[0][0] if self._coming else ends_s, max(self.now_s, self._pending.due_s))
            left -= (next_s - self.now_s) / takes_s[self.mhz]
            self.now_s = next_s
            if self._take():
                self.now_s += self._profile.request_stall_s


def iteration_times_s(problem: Problem, plan: Plan, iterations: int, seed: int) -> np.ndarray:
    """Train with a plan; return the time of each iteration."""
    dag, draw = problem.dag, random.Random(seed)
    mhz = plan.clocks_of(dag.instructions).tolist()
    takes_s = [
        {point.frequency_mhz: point.time_s for point in problem.curves[curve] if point.frequency_mhz in mhz}
        for curve in problem.curve_of
    ]
    programs = [order.tolist() for order in dag.program_order]
    gpus = [Gpu(mhz[program[0]], problem, draw) for program in programs]
    aims_s = [plan.aims_s.get(one, 0.0) for one in dag.instructions]
    clocks = [
        IterationClocks(max(mhz), tuple(mhz[one] for one in program), aims_s=tuple(aims_s[one] for one in program))
        for program in programs
    ]
    place = {node: (stage, index) for stage, program in enumerate(programs) for index, node in enumerate(program)}
    begun_s: list[np.ndarray] = [dag.starts_s([takes_s[node][mhz[node]] for node in range(len(mhz))])[: len(mhz)]]
    times_s, begin_s = [], 0.0
    for number in range(iterations):
        expected_s = np.median(begun_s[-LIKE:], axis=0)
        tokens = [
            IterationToken(one, number, tuple(expected_s[nodes])) for one, nodes in zip(clocks, programs, strict=True)
        ]
        for gpu, token in zip(gpus, tokens, strict=True):
            gpu.wait(begin_s)
            gpu.controller.begin(token, begin_s)
        ends_s, starts_s = np.full(dag.nodes, begin_s), np.zeros(len(mhz))
        for node in dag.topological_order.tolist():
            before = dag.predecessors.members[dag.predecessors.indptr[node] : dag.predecessors.indptr[node + 1]]
            ends_s[node] = ends_s[before].max() if before.size else begin_s
            if node >= len(mhz):
                ends_s[node] += dag.constant_times_s[node - len(mhz)]
                continue
            stage, index = place[node]
            gpu, token = gpus[stage], tokens[stage]
            starts_s[node] = ends_s[node] - begin_s
            gpu.wait(ends_s[node])
            gpu.controller.instruction_began(token, index, gpu.now_s)
            gpu.work(takes_s[node])
            ends_s[node] = gpu.now_s
            if not token.expects(index + 1):
                gpu.controller.instruction_ended(token, index, gpu.now_s)
        begun_s.append(starts_s)
        times_s.append(ends_s.max() - begin_s)
        begin_s = ends_s.max()
    return np.array(times_s)
