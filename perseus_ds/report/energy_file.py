"""The file with the energy of each rank and kind of instruction."""

from __future__ import annotations

from perseus_ds.coordination.events import EnergySplitKnown, Event
from perseus_ds.rundir import RunDirectory

__all__ = ["ENERGY_FILE", "EnergyFile"]

ENERGY_FILE = "energy.csv"


class EnergyFile:
    """Writes ``energy.csv``: a row for each rank and kind, every time that the energy is split up.

    Args:
        directory: The run directory.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory

    def __call__(self, event: Event) -> None:
        """Handle an event."""
        if isinstance(event, EnergySplitKnown) and event.ranks:
            rows = [
                {
                    "iteration": event.iteration,
                    "rank": row.rank,
                    "pipeline": row.pipeline,
                    "stage": row.stage,
                    "kind": row.energy.kind,
                    "instructions": f"{row.energy.instructions:g}",
                    "time_s": f"{row.energy.time_s:.6f}",
                    "energy_j": f"{row.energy.energy_j:.4f}",
                }
                for row in event.ranks
            ]
            self._directory.append_rows(ENERGY_FILE, rows)
