"""The DAG of one pipeline iteration: instructions with a chosen duration, and nodes with a fixed time.

Arrays inside, networkx at the border. Source: Perseus (SOSP '24), section 4.1; fixed nodes are the paper's
"single-choice operations".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.csr import Csr, grouped
from perseus_ds.pipeline.instruction import Instruction

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["Constant", "PipelineDag", "edge_array"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Constant:
    """A node whose time does not depend on the clock: a transfer, loading, the optimizer, the tail.

    Attributes:
        label: Name for people.
        duration_s: Its time.
    """

    label: str
    duration_s: float


@dataclass(frozen=True)
class PipelineDag:
    """Instructions, constants, and their dependencies.

    Nodes are numbered: first the instructions, in the given order, then the constants.

    Attributes:
        instructions: Nodes ``0 … len(instructions) - 1``.
        constants: The nodes after them.
        edges: Shape (edges, 2): the second node starts after the end of the first. No cycles, no duplicates.
    """

    instructions: tuple[Instruction, ...]
    constants: tuple[Constant, ...]
    edges: IntArray

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.instructions) + len(self.constants)

    @property
    def stages(self) -> int:
        """Number of pipeline stages."""
        return 1 + max((instruction.stage for instruction in self.instructions), default=-1)

    @cached_property
    def constant_times_s(self) -> FloatArray:
        """Times of the constants, shape (constants,)."""
        return np.array([constant.duration_s for constant in self.constants], dtype=np.float64)

    @cached_property
    def successors(self) -> Csr:
        """The nodes that wait for each node."""
        return grouped(self.edges[:, 0], self.edges[:, 1], self.nodes)

    @cached_property
    def predecessors(self) -> Csr:
        """The nodes that each node waits for."""
        return grouped(self.edges[:, 1], self.edges[:, 0], self.nodes)

    @cached_property
    def topological_order(self) -> IntArray:
        """Every node after all its predecessors (Kahn's algorithm).

        Raises:
            PerseusError: There is a cycle.
        """
        indptr, heads = (array.tolist() for array in self.successors)
        waiting = np.bincount(self.edges[:, 1], minlength=self.nodes).tolist()
        order = [node for node, count in enumerate(waiting) if count == 0]
        for node in order:
            for head in heads[indptr[node] : indptr[node + 1]]:
                waiting[head] -= 1
                if waiting[head] == 0:
                    order.append(head)
        if len(order) < self.nodes:
            stuck = next(node for node, count in enumerate(waiting) if count > 0)
            raise PerseusError("dag-cyclic", where=self.label(stuck))
        return np.array(order, dtype=np.int64)

    @cached_property
    def program_order(self) -> tuple[IntArray, ...]:
        """Each stage's instructions in execution order."""
        order = self.topological_order
        order = order[order < len(self.instructions)]
        stage = np.array([instruction.stage for instruction in self.instructions], dtype=np.int64)
        return tuple(order[stage[order] == number] for number in range(self.stages))

    @cached_property
    def program(self) -> Csr:
        """Each stage's instructions in execution order, for compiled code."""
        return Csr(np.cumsum([0, *map(len, self.program_order)]), np.concatenate(self.program_order))

    def label(self, node: int) -> str:
        """Return a node's name for people."""
        if node >= len(self.instructions):
            return self.constants[node - len(self.instructions)].label
        return self.instructions[node].label

    def node_times_s(self, durations_s: FloatArray | Sequence[float]) -> FloatArray:
        """Return the times of all nodes, shape (nodes,), from the durations of the instructions."""
        durations = np.asarray(durations_s, dtype=np.float64)
        if durations.shape != (len(self.instructions),):
            raise ValueError(f"{len(self.instructions)} durations needed, got shape {durations.shape}")
        return np.concatenate((durations, self.constant_times_s))

    def starts_s(self, durations_s: FloatArray | Sequence[float]) -> FloatArray:
        """Return every node's earliest start, shape (nodes,), for these durations of the instructions."""
        return self.heads_s(self.node_times_s(durations_s))

    def makespan(self, durations_s: FloatArray | Sequence[float]) -> float:
        """Return the iteration time in seconds for these durations of the instructions."""
        times = self.node_times_s(durations_s)
        return float(np.max(self.heads_s(times) + times, initial=0.0))

    def critical_path(self, durations_s: FloatArray | Sequence[float]) -> list[int]:
        """Return the nodes of one longest path, first to last."""
        return self.longest_path(self.node_times_s(durations_s))

    def longest_path(self, weights: FloatArray) -> list[int]:
        """Return the nodes of one path with the largest sum of weights, shape (nodes,), first to last."""
        from perseus_ds.pipeline.paths import path_to

        ends = self.heads_s(weights) + weights
        return path_to(int(np.argmax(ends)), self.predecessors, ends)[::-1].tolist()

    def to_networkx(self) -> nx.DiGraph:
        """Return a graph whose nodes 0, 1, … carry ``instruction`` or ``label`` and ``duration_s``."""
        import networkx as nx

        graph = nx.DiGraph()
        for node, instruction in enumerate(self.instructions):
            graph.add_node(node, instruction=instruction)
        for node, constant in enumerate(self.constants, start=len(self.instructions)):
            graph.add_node(node, label=constant.label, duration_s=constant.duration_s)
        graph.add_edges_from(self.edges.tolist())
        return graph

    @classmethod
    def from_networkx(cls, graph: nx.DiGraph) -> PipelineDag:
        """Build a DAG from a graph whose nodes carry ``instruction``, or ``duration_s`` and an optional ``label``."""
        variable = [(node, data["instruction"]) for node, data in graph.nodes(data=True) if "instruction" in data]
        fixed = [(node, data) for node, data in graph.nodes(data=True) if "instruction" not in data]
        number: Mapping[Any, int] = {node: i for i, (node, _) in enumerate([*variable, *fixed])}
        return cls(
            tuple(instruction for _, instruction in variable),
            tuple(Constant(str(data.get("label", node)), data["duration_s"]) for node, data in fixed),
            edge_array([(number[a], number[b]) for a, b in graph.edges]),
        )

    def heads_s(self, times_s: FloatArray) -> FloatArray:
        """Return every node's earliest start, shape (nodes,), from the times of all nodes."""
        from perseus_ds.pipeline.paths import longest_to

        return longest_to(self.topological_order, self.predecessors, times_s)


def edge_array(edges: Sequence[tuple[int, int]]) -> IntArray:
    """Return edges as a sorted array of shape (edges, 2), without duplicates."""
    return np.unique(np.array(edges, dtype=np.int64).reshape(-1, 2), axis=0)
