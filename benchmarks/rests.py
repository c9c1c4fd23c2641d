"""What a rest in the wait before the first instruction saves, by the planner's reckoning, on the GPT-3 175B profiles.

    python benchmarks/rests.py [--microbatches 8 16 32] [--slope 40] [--latency 0.02]

Waiting power falls by the slope from the highest to the lowest profiled clock. Every wait counts at the clock that a
GPU waits at: that of the instruction before, or the one it rests at.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from rich.console import Console
from rich.table import Table
from switching import GPUS, PROFILES

from perseus_ds.frontier import Problem, solve
from perseus_ds.frontier.observed import at_highest
from perseus_ds.frontier.waiting import rest_clock_mhz, with_waiting
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import read_profile


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--microbatches", nargs="+", type=int, default=[8, 16, 32])
    parser.add_argument("--slope", type=float, default=40.0, metavar="W", help="from the highest to the lowest clock")
    parser.add_argument("--latency", type=float, default=0.02, metavar="SECONDS", help="from a request to a clock")
    arguments = parser.parse_args()
    table = Table("GPUs", "micro-batches", "energy without, J", "with rests, J", "saved by rests", "saved by the plan")
    for name, (file, blocking_w) in GPUS.items():
        profile = read_profile(PROFILES / file)
        clocks_mhz = sorted({point.frequency_mhz for curve in profile.curves.values() for point in curve})
        sloping = replace(
            profile,
            waiting_slope_w_per_mhz=arguments.slope / (clocks_mhz[-1] - clocks_mhz[0]),
            waiting_mhz=float(clocks_mhz[-1]),
            switch_latency_s=dict.fromkeys(clocks_mhz, arguments.latency),
        )
        for microbatches in arguments.microbatches:
            problem = Problem(schedule_dag("1f1b", profile.stages, microbatches), sloping, blocking_w)
            frontier = solve(problem)
            plan = frontier.plan(frontier.t_min_s)
            before_j = with_waiting(problem, at_highest(problem)).energy_j
            without_j = with_waiting(problem, plan).energy_j
            rested_j = with_waiting(problem, plan, rest_clock_mhz(sloping, frontier.t_min_s)).energy_j
            saved = (
                f"{100 * (1 - after / before):.2f} %"
                for before, after in ((without_j, rested_j), (before_j, without_j))
            )
            table.add_row(name, str(microbatches), f"{without_j:,.0f}", f"{rested_j:,.0f}", *saved)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
