"""Zeus's plan files, ``freqs_pipeline_%05d.py``: a list of one list per stage of (instruction, MHz).

Format: ml-energy/zeus, ``examples/pipeline_frequency_optimizer`` (written) and
``zeus/optimizer/pipeline_frequency/server`` (read). As there, file 0 is the slowest plan.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from perseus_ds.files import read_text
from perseus_ds.frontier.plan import Plan, evaluate
from perseus_ds.frontier.problem import Problem
from perseus_ds.messages import PerseusError

__all__ = ["read_zeus_plan", "write_zeus_plans"]


def write_zeus_plans(plans: Sequence[Plan], directory: str | Path) -> list[Path]:
    """Write one file per plan, the slowest as number 0.

    Returns:
        The files written.
    """
    files = []
    for number, plan in enumerate(sorted(plans, key=lambda plan: -plan.time_s)):
        stages: dict[int, list[tuple[str, int]]] = {}
        for one, mhz in plan.frequency_mhz.items():
            stages.setdefault(one.stage, []).append((one.kind.value, mhz))
        lines = [f"{stages[stage]},\n" for stage in sorted(stages)]
        file = Path(directory) / f"freqs_pipeline_{number:05d}.py"
        file.write_text(
            "[\n" + "".join(lines) + "]\n"
            f"# Iteration {number} iteration time: {plan.time_s}\n"
            f"# Iteration {number} total cost with P2P: {plan.energy_j}\n",
            encoding="utf-8",
        )
        files.append(file)
    return files


def read_zeus_plan(path: str | Path, problem: Problem) -> Plan:
    """Read a plan file and evaluate it on a problem.

    Args:
        path: A file in the format of Zeus or ``write_zeus_plans``; it is parsed, not executed.
        problem: Its stages and program orders must match the file's.

    Raises:
        PerseusError: The file does not hold a plan of this problem.
    """
    try:
        stages = ast.literal_eval(read_text(Path(path)).strip())
        rows = [[(str(kind), int(mhz)) for kind, mhz in stage] for stage in stages]
    except (OSError, ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise PerseusError("zeus-plan-unreadable", file=path, detail=error) from error
    orders = problem.dag.program_order
    if [len(row) for row in rows] != [len(order) for order in orders]:
        detail = f"{[len(row) for row in rows]} instructions per stage, not {[len(order) for order in orders]}"
        raise PerseusError("zeus-plan-unreadable", file=path, detail=detail)
    frequencies = [0] * len(problem.dag.instructions)
    for stage, (row, order) in enumerate(zip(rows, orders, strict=True)):
        for position, ((kind, mhz), node) in enumerate(zip(row, order.tolist(), strict=True)):
            if kind != problem.dag.instructions[node].kind.value:
                detail = f"stage {stage}, position {position}: {kind!r} where the schedule has the other"
                raise PerseusError("zeus-plan-unreadable", file=path, detail=detail)
            frequencies[node] = mhz
    return evaluate(problem, frequencies)
