"""Builds the DAG of one pipeline from the traces of its stages.

Its edges are the program order of each stage, and transfers with rendezvous. A transfer starts after both sides have
posted it. A blocking exchange returns after all its transfers. Real schedules are therefore more than data
dependencies. No common clock is needed: only durations and orders count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.dag import Constant, PipelineDag, edge_array
from perseus_ds.pipeline.events import Direction, Transfer
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.trace import StageTrace, TimedOperation

__all__ = ["dag_from_traces", "extra_times_s", "tail_s", "with_tail"]

_COLLECTIVE = (Kind.REDUCE, Kind.OPTIMIZER)  # may hide a wait for the slowest rank

_LONGER = 1.03
"""An instruction that takes this multiple of its kind's typical time has an extra time."""
_STANDS_OUT = 3 * 1.2533  # standard deviations of a median, times the root of how many values it is of

_TAIL = "tail of the iteration"

_Link = tuple[int, int, str]  # sender, receiver, tag
_Hop = tuple[_Link, int]  # the k-th transfer of a link


def dag_from_traces(traces: Sequence[StageTrace]) -> PipelineDag:
    """Build the DAG of one iteration of one pipeline.

    The constants are transfers, overheads between operations, loading, reduction, optimizer, extra times, and a tail.
    An instruction has an extra time where it takes longer than its kind mostly does: beside the gradient reduction, or
    beside the gather of parameters. Where micro-batches differ, it must stand out from that. The tail makes the
    makespan at the measured durations equal to the measured iteration time. The hop time of a link is a median over
    its transfers. It takes the shorter duration of the two sides: the later side sees only the transfer. In a joint
    exchange it takes the shortest one. One that overlaps with work tells only where none of its link does not.

    Args:
        traces: One per stage, of the same iteration.

    Raises:
        PerseusError: A send has no receive, or a receive no send.
    """
    traces = sorted(traces, key=lambda trace: trace.stage)
    hops = _hop_times(traces)
    fixed = _fixed_times(traces)
    extra = {instruction: time_s for trace in traces for instruction, time_s in extra_times_s(trace).items()}
    builder = _Builder(extra)
    for trace in traces:
        builder.add_stage(trace, fixed, hops)
    dag = builder.dag()
    measured = {
        Instruction.of(trace.stage, timed.operation): timed.duration_s
        for trace in traces
        for timed in trace.operations
        if timed.operation.kind.is_instruction
    }
    makespan_s = dag.makespan([measured[one] - extra.get(one, 0.0) for one in dag.instructions])
    return with_tail(dag, max(0.0, median(trace.iteration_time_s for trace in traces) - makespan_s))


class _Builder:
    """Collects nodes and edges; constants get negative numbers until all instructions are known."""

    def __init__(self, extra: Mapping[Instruction, float]) -> None:
        self.extra = extra
        self.instructions: list[Instruction] = []
        self.constants: list[Constant] = []
        self.edges: list[tuple[int, int]] = []
        self.hop_nodes: dict[_Hop, int] = {}

    def constant(self, label: str, duration_s: float, after: Sequence[int]) -> int:
        self.constants.append(Constant(label, duration_s))
        node = -len(self.constants)
        self.edges += [(before, node) for before in after]
        return node

    def add_stage(self, trace: StageTrace, fixed: dict[tuple, float], hops: dict[_Link, float]) -> None:
        """Add the operations of one stage. ``done``: nodes that must end before its next operation begins."""
        done: list[int] = []
        counts: dict[tuple[Direction, _Link], int] = defaultdict(int)
        posted: dict[Transfer, list[int]] = defaultdict(list)
        previous: Kind | None = None
        for timed in trace.operations:
            one = timed.operation
            overhead_s = fixed[trace.stage, previous, one.kind]
            if overhead_s > 0:
                done = [self.constant(f"overhead of stage {trace.stage}", overhead_s, done)]
            previous = one.kind
            if one.kind.is_instruction:
                self.instructions.append(Instruction.of(trace.stage, one))
                self.edges += [(before, len(self.instructions) - 1) for before in done]
                done = [len(self.instructions) - 1]
                if (extra_s := self.extra.get(self.instructions[-1], 0.0)) > 0:
                    done = [self.constant(f"extra time of {self.instructions[-1]}", extra_s, done)]
            elif one.kind is Kind.WAIT:
                done += [posted[transfer].pop(0) for transfer in one.transfers if posted[transfer]]
            elif one.kind in (Kind.EXCHANGE, Kind.POST):
                nodes = []
                for transfer in one.transfers:
                    link = _link(trace.stage, transfer)
                    number = counts[transfer.direction, link]
                    counts[transfer.direction, link] += 1
                    nodes.append(self._hop(link, number, hops[link], done))
                    if one.kind is Kind.POST:
                        posted[transfer].append(nodes[-1])
                if one.kind is Kind.EXCHANGE and nodes:
                    done = nodes
            else:
                done = [self.constant(f"{one.kind.value} of stage {trace.stage}", fixed[trace.stage, one.kind], done)]

    def _hop(self, link: _Link, number: int, duration_s: float, after: Sequence[int]) -> int:
        """Return the transfer's one node, which waits for both sides."""
        sender, receiver, tag = link
        if (link, number) not in self.hop_nodes:
            label = f"{tag} {number} from stage {sender} to {receiver}"
            self.hop_nodes[link, number] = self.constant(label, duration_s, ())
        node = self.hop_nodes[link, number]
        self.edges += [(before, node) for before in after]
        return node

    def dag(self) -> PipelineDag:
        count = len(self.instructions)
        edges = [(a if a >= 0 else count - 1 - a, b if b >= 0 else count - 1 - b) for a, b in self.edges]
        return PipelineDag(tuple(self.instructions), tuple(self.constants), edge_array(edges))


def with_tail(dag: PipelineDag, tail_s: float) -> PipelineDag:
    """Append a constant after everything.

    Args:
        dag: The pipeline.
        tail_s: The constant's time.
    """
    lasts = np.setdiff1d(np.arange(dag.nodes), dag.edges[:, 0])
    edges = np.concatenate((dag.edges, np.stack((lasts, np.full_like(lasts, dag.nodes)), axis=1)))
    return replace(dag, constants=(*dag.constants, Constant(_TAIL, tail_s)), edges=edges)


def tail_s(dag: PipelineDag) -> float:
    """Return the time, in seconds, of the constants after everything."""
    return sum(constant.duration_s for constant in dag.constants if constant.label == _TAIL)


def _link(stage: int, transfer: Transfer) -> _Link:
    if transfer.direction is Direction.SEND:
        return stage, transfer.peer, transfer.tag
    return transfer.peer, stage, transfer.tag


def _hop_times(traces: Sequence[StageTrace]) -> dict[_Link, float]:
    """Match sends with receives, and return each link's time per transfer."""
    seen: dict[_Link, dict[Direction, list[tuple[float, bool]]]] = defaultdict(lambda: {side: [] for side in Direction})
    joint: set[_Link] = set()
    for trace in traces:
        blocked = _blocked_times(trace)
        for timed, times in zip(trace.operations, blocked, strict=True):
            transfers, overlaps = timed.operation.transfers, timed.operation.kind is Kind.POST
            if len(transfers) > 1:
                joint.update(_link(trace.stage, transfer) for transfer in transfers)
            for transfer, duration_s in zip(transfers, times, strict=False):
                seen[_link(trace.stage, transfer)][transfer.direction].append((duration_s, overlaps))
    hops = {}
    for link, sides in seen.items():
        sends, receives = sides[Direction.SEND], sides[Direction.RECEIVE]
        if len(sends) != len(receives):
            sender, receiver, tag = link
            raise PerseusError(
                "trace-unmatched",
                count=len(sends),
                other=len(receives),
                tag=tag,
                sender=sender,
                receiver=receiver,
            )
        pairs = [(min(a_s, b_s), a or b) for (a_s, a), (b_s, b) in zip(sends, receives, strict=True)]
        # Work may hide a part of a posted transfer, or all of it: others of the link tell better.
        shorter = [one_s for one_s, overlaps in pairs if not overlaps] or [one_s for one_s, _ in pairs]
        # Within a joint exchange both sides may wait for a third: the shortest waited least.
        hops[link] = max(0.0, min(shorter) if link in joint else median(shorter))
    return hops


def _blocked_times(trace: StageTrace) -> list[list[float]]:
    """Return the blocked time of the stage per transfer, for each operation that posts transfers."""
    blocked: list[list[float]] = [[] for _ in trace.operations]
    open_posts: dict[Transfer, list[tuple[int, int]]] = defaultdict(list)
    for index, timed in enumerate(trace.operations):
        one = timed.operation
        if one.kind is Kind.EXCHANGE:
            blocked[index] = [timed.duration_s] * len(one.transfers)
        elif one.kind is Kind.POST:
            blocked[index] = [0.0] * len(one.transfers)
            for position, transfer in enumerate(one.transfers):
                open_posts[transfer].append((index, position))
        elif one.kind is Kind.WAIT:
            for transfer in one.transfers:
                if open_posts[transfer]:
                    post, position = open_posts[transfer].pop(0)
                    blocked[post][position] = timed.duration_s
    return blocked


def extra_times_s(trace: StageTrace) -> dict[Instruction, float]:
    """Return by how much single instructions take longer at their position than their kind mostly does.

    Args:
        trace: Of one stage.
    """
    took_s: dict[tuple, list[float]] = defaultdict(list)
    work = trace.instructions
    for timed in work:
        took_s[_kind_of(timed)].append(timed.duration_s)
    typical_s = {kind: median(times_s) for kind, times_s in took_s.items()}
    longer = _LONGER
    if trace.sizes:
        sizes = np.array(trace.sizes)
        longer += _STANDS_OUT * float(sizes.std(axis=0).mean()) / len(sizes) ** 0.5
    return {
        Instruction.of(trace.stage, timed.operation): timed.duration_s - typical_s[_kind_of(timed)]
        for timed in work
        if timed.duration_s > longer * typical_s[_kind_of(timed)]
    }


def _kind_of(timed: TimedOperation) -> tuple[Kind, int, int]:
    return timed.operation.kind, timed.operation.chunk, timed.operation.backward_chunk


def _fixed_times(traces: Sequence[StageTrace]) -> dict[tuple, float]:
    """Return the constants of each stage: (stage, kind) durations and (stage, kind before, kind) overheads."""
    durations: dict[tuple, list[float]] = defaultdict(list)
    overheads: dict[tuple, list[float]] = defaultdict(list)
    for trace in traces:
        before: TimedOperation | None = None
        for timed in trace.operations:
            durations[trace.stage, timed.operation.kind].append(timed.duration_s)
            gap_s = timed.begin_s - (before.end_s if before else 0.0)
            overheads[trace.stage, before.operation.kind if before else None, timed.operation.kind].append(gap_s)
            before = timed
    fixed = {key: max(0.0, median(values)) for key, values in (durations | overheads).items()}
    for kind in _COLLECTIVE:
        values = [fixed[trace.stage, kind] for trace in traces if (trace.stage, kind) in fixed]
        fixed |= {(trace.stage, kind): min(values) for trace in traces if (trace.stage, kind) in fixed}
    return fixed
