"""The frontier against HiGHS on the same linear program, for random DAGs and random measured curves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

from perseus_ds.frontier import Problem, solve
from perseus_ds.pipeline.dag import Constant, PipelineDag, edge_array
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey, ProfilePoint, make_profile


def highs_effective_j(problem: Problem, limit_s: float) -> float:
    """Least sum of effective energies with a makespan of at most ``limit_s``, by HiGHS.

    Variables: start and duration of every node, energy of every instruction.
    """
    dag, count = problem.dag, len(problem.dag.instructions)
    curves = [problem.options[index] for index in problem.curve_of]
    bounds = [(0, limit_s)] * dag.nodes
    bounds += [(c.time_s[0], c.time_s[-1]) for c in curves]
    bounds += [(c.duration_s, c.duration_s) for c in dag.constants]
    bounds += [(None, None)] * count
    rows: list[tuple[dict[int, float], float]] = [({a: 1, dag.nodes + a: 1, b: -1}, 0.0) for a, b in dag.edges.tolist()]
    rows += [({node: 1, dag.nodes + node: 1}, limit_s) for node in range(dag.nodes)]
    for node, curve in enumerate(curves):
        times, energies = curve.time_s[curve.hull], curve.effective_j[curve.hull]
        slopes = np.diff(energies) / np.diff(times) if len(times) > 1 else np.zeros(1)
        for slope, time, energy in zip(slopes, times, energies, strict=False):
            rows.append(({dag.nodes + node: slope, 2 * dag.nodes + node: -1}, slope * time - energy))
    entries = [(value, number, column) for number, (row, _) in enumerate(rows) for column, value in row.items()]
    values, numbers, columns = zip(*entries, strict=True)
    matrix = csr_matrix((values, (numbers, columns)), (len(rows), len(bounds)))
    cost = np.concatenate((np.zeros(2 * dag.nodes), np.ones(count)))
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    limits = [limit for _, limit in rows]
    result = linprog(cost, matrix, limits, bounds=bounds, method="highs", options=tight)
    assert result.status == 0, result.message
    return result.fun


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """A random DAG of instructions and constants, with random curves, convex or not."""
    instructions = draw(st.integers(1, 12))
    constants = draw(st.lists(st.floats(0, 0.3), max_size=3))
    nodes = instructions + len(constants)
    pairs = [(a, b) for b in range(nodes) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=3 * nodes)) if pairs else []
    relabel = draw(st.permutations(range(nodes)))
    chunks = draw(st.integers(1, 3))
    convex = draw(st.booleans())
    power_w = draw(st.sampled_from([0.0, 75.0, 400.0]))
    curves = {}
    for key in (CurveKey(0, kind, chunk) for kind in (Kind.FORWARD, Kind.BACKWARD) for chunk in range(chunks)):
        steps = draw(st.lists(st.floats(1e-4, 0.1), min_size=1, max_size=8))
        times = np.cumsum(steps)
        if convex:
            energies = 30.0 / (times - times[0] + draw(st.floats(0.05, 1.0))) + power_w * times
        else:
            energies = np.array(draw(st.lists(st.floats(0, 60), min_size=len(steps), max_size=len(steps))))
        curves[key] = [ProfilePoint(1400 - 15 * i, t, e) for i, (t, e) in enumerate(zip(times, energies, strict=True))]
    dag = PipelineDag(
        tuple(Instruction(0, list(Kind)[i % 2], i, i % chunks) for i in range(instructions)),
        tuple(Constant(f"constant {i}", time) for i, time in enumerate(constants)),
        edge_array([(relabel[a], relabel[b]) for a, b in edges]),
    )
    return Problem(dag, make_profile(curves), power_w)


@pytest.mark.compiled
@settings(max_examples=320, suppress_health_check=[HealthCheck.too_slow])
@given(problems(), st.lists(st.floats(0.01, 0.99), min_size=3, max_size=3))
def test_frontier_is_the_linear_program_s_optimum(problem: Problem, between: list[float]) -> None:
    frontier = solve(problem)
    for share in (0.0, *between, 1.0):
        # A hair above: HiGHS works in floats, and may find T_min itself infeasible.
        limit_s = frontier.t_min_s * (1 + 1e-9) + share * (frontier.t_star_s - frontier.t_min_s)
        expected_j = problem.energy_j(highs_effective_j(problem, limit_s), limit_s)
        assert frontier.lower_bound_j(limit_s) == pytest.approx(expected_j, rel=1e-6, abs=1e-6)

        starts, durations = frontier.start_times(limit_s), frontier.durations(limit_s)
        times = problem.dag.node_times_s(durations)
        rounding_s = 1e-6 * limit_s
        assert (starts + times <= limit_s + rounding_s).all()
        for before, after in problem.dag.edges:
            assert starts[before] + times[before] <= starts[after] + rounding_s

        plan = frontier.plan(limit_s)
        assert plan.time_s <= limit_s
        assert plan.energy_j >= plan.lower_bound_j * (1 - 1e-9) - 1e-9
