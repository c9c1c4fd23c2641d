"""The exact time-energy frontier of a pipeline, and plans for real GPU clocks.

``solve(Problem(dag, profile, blocking_power_w))`` returns a ``Frontier``; ``frontier.plan(t_s)`` returns a ``Plan``.
Imports neither torch nor pynvml.
"""

from perseus_ds.frontier.plan import Plan, evaluate
from perseus_ds.frontier.problem import Problem
from perseus_ds.frontier.solver import Frontier, solve

__all__ = ["Frontier", "Plan", "Problem", "evaluate", "solve"]
