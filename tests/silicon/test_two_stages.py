"""Stalls of a neighbour: in the waits on the virtual stream, and told where they are not."""

import pytest

from perseus_ds.silicon.lab import Load
from perseus_ds.silicon.two_stages import PROGRAMS, judge, measure, two_stages
from perseus_ds.silicon.virtual_lab import VirtualLab


def test_stalls_land_in_the_waits_of_all_programs(make_lab):
    outcome = two_stages(make_lab())
    assert outcome.passed, outcome.why
    assert len(outcome.figures) == 2 * len(PROGRAMS)


class Late(VirtualLab):
    """A stall that takes longer than planted."""

    def stall(self, seconds):
        super().stall(seconds + 0.0003)


class Leaks(VirtualLab):
    """After stalls, what is computed takes longer."""

    stalled = False

    def stall(self, seconds):
        super().stall(seconds)
        self.stalled = True

    def work(self, load, seconds, blocks=1):
        super().work(load, seconds * 1.02 if self.stalled and load is Load.GENTLE else seconds, blocks)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("kind", "why"), [(Late, "a wait tells 0.30 ms"), (Leaks, "instructions changed by +2.0%")])
def test_what_goes_elsewhere_is_told(make_lab, name, kind, why):
    assert f"{name}: {why}" in judge({name: [measure(make_lab(kind), name)]}).why
