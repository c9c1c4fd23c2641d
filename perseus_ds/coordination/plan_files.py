"""Writes the results and the progress of planning to the run directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

from perseus_ds.config import Config
from perseus_ds.console import ProgressLine, log
from perseus_ds.coordination.plan_table import PipelineGroup
from perseus_ds.coordination.resume import numbered, remember
from perseus_ds.frontier import Frontier
from perseus_ds.pipeline.trace import StageTrace
from perseus_ds.profiling.latencies import DELAYS
from perseus_ds.profiling.table import Profile, write_profile
from perseus_ds.rundir import RunDirectory

__all__ = ["PlanFiles"]


class PlanFiles:
    """Writes ``profile.csv``, ``trace.json``, ``frontier.json`` and ``progress.json``.

    Args:
        config: The whole configuration.
        directory: The run directory.
        depends: Inputs of each pipeline group's profile.
    """

    def __init__(self, config: Config, directory: RunDirectory, depends: Sequence[Mapping[str, str]]) -> None:
        self._config = config
        self._directory = directory
        self._depends = depends

    def profile(self, number: int, profile: Profile) -> None:
        """Write the profile of a pipeline group."""
        path = self._directory.path / numbered("profile.csv", number)
        self._directory.later(partial(write_profile, profile, path))

    def traces(self, number: int, traces: Sequence[StageTrace]) -> None:
        """Write the planned iteration of a pipeline group, one trace per stage."""
        self._directory.write_json(numbered("trace.json", number), [trace.to_json() for trace in traces])

    def remember(self, number: int, profile: Profile, blocking_power_w: float) -> None:
        """Keep a profile for the next start, unless the user gave it."""
        if self._config.profiling.profile is None:
            remember(self._config, self._directory, number, self._depends[number], profile, blocking_power_w)

    def frontier(self, number: int, frontier: Frontier, group: PipelineGroup) -> None:
        """Write and log the frontier of a pipeline group, and its plans."""
        content = _frontier_json(frontier, group, simulated=self._config.simulator is not None)
        self._directory.write_json(numbered("frontier.json", number), content)
        log.info(
            "frontier: %d instructions, %d breakpoints, T_min %.3f s, T* %.3f s, %d plans",
            len(group.dag.instructions),
            frontier.breakpoints,
            frontier.t_min_s,
            frontier.t_star_s,
            len(group.base.points),
        )

    @contextmanager
    def progress(self, title: str, total: int, every: int) -> Iterator[Callable[[int], None]]:
        """Show progress on a terminal or in the log, and to ``perseus-ds status``.

        Args:
            title: Name of the work.
            total: Largest number of steps.
            every: Steps between two lines.

        Yields:
            A function to call with the current step.
        """
        with closing(ProgressLine(title, total, every)) as line:

            def show(step: int) -> None:
                if line.to(step):
                    self._directory.write_json("progress.json", {"progress": f"{title}: {step}/{total}"})

            yield show


def _frontier_json(frontier: Frontier, group: PipelineGroup, simulated: bool) -> dict[str, Any]:
    return {
        "simulated": simulated,
        "t_min_s": frontier.t_min_s,
        "t_star_s": frontier.t_star_s,
        "breakpoints": frontier.breakpoints,
        "max_energy_j": group.max_energy_j,
        "blocking_power_w": frontier.problem.stage_power_w.tolist(),
        "gpus_per_stage": frontier.problem.gpus_per_stage,
        "microbatch_spread": group.microbatch_spread,
        **{name: getattr(frontier.problem.profile, name) for name in DELAYS},
        "limited": [[*key] for key in sorted(frontier.problem.profile.limited)],
        "switch_latency_s": dict(frontier.problem.profile.switch_latency_s),
        "frontier": [
            {
                "time_s": point.time_s,
                "energy_j": point.energy_j,
                "lower_bound_j": point.lower_bound_j,
                "switches": point.switches,
            }
            for point in group.base.points
        ],
    }
