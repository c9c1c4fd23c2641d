"""The exact time-energy frontier of a pipeline, and plans that GPUs can run.

``solve(Problem(dag, profile, blocking_power_w))`` gives a ``Frontier``; ``frontier.plan(t_s)`` a ``Plan``.
Imports neither torch nor pynvml.
"""

from perseus_ds.frontier.plan import Plan, evaluate
from perseus_ds.frontier.problem import Problem
from perseus_ds.frontier.solver import Frontier, solve

__all__ = ["Frontier", "Plan", "Problem", "evaluate", "solve"]
