"""Graphs captured beside the follower, whole and broken."""

from perseus_ds.silicon.capture import capture
from perseus_ds.silicon.virtual_lab import VirtualLab


def test_captures_stay_whole_while_events_come(make_lab):
    outcome = capture(make_lab())
    assert outcome.passed, outcome.why
    assert outcome.figures["events"] == 1600


class Strict(VirtualLab):
    """The follower waits in CUDA's default mode."""

    follower_captures_locally = False


class Deaf(VirtualLab):
    """The follower loses events."""

    def follow(self, event, seen):
        if event.number % 7:
            super().follow(event, seen)


class Short(VirtualLab):
    """Captures are over before anything happens."""

    def capture(self, seconds):
        return super().capture(0.0)


def test_what_is_broken_is_told(make_lab):
    assert "200 of 200 captures were broken" in capture(make_lab(Strict)).why
    assert "of 1600 events" in capture(make_lab(Deaf)).why
    assert "no event came meanwhile" in capture(make_lab(Short)).why
