"""Experiment: does the timer's device time stay with the host's clock, for as long as the whole check lasts?

Handshakes tell both clocks' times of one moment. The timer knows nothing of them: it ties the device's events to the
host's clock by when they were recorded and seen.
"""

from __future__ import annotations

import numpy as np

from perseus_ds.silicon.lab import Handshake, Lab, Load, between
from perseus_ds.silicon.outcome import Limit, Outcome, judged, percentile

__all__ = ["TimeWatch", "device_time"]

NAME = "time"
SPAN_S = 300.0
_MARKS, _WORK_S = 20, 0.005
_WORST_S = 100e-6
_LOOK_EVERY_S = 10.0


class TimeWatch:
    """Compares the two clocks now and then, beside other experiments.

    Args:
        lab: The lab.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._timer = lab.timer()
        self._looks: list[tuple[float, list[float]]] = []
        self._first_s = lab.now_s()
        self._handshakes: list[Handshake] = []

    def look(self) -> None:
        """Time some work by the timer and by stamps; the device is idle before."""
        lab = self._lab
        handshakes = [lab.handshake() for _ in range(_MARKS)]
        marks, before, after = [], [], []
        for _ in range(_MARKS):
            before.append(lab.stamp())
            marks.append(self._timer.mark(followed=True))
            after.append(lab.stamp())  # the device may have waited for the host between the two
            self._timer.when_reached(marks[-1], lambda _: None)
            lab.work(Load.SPIN, _WORK_S)
        lab.synchronize()
        handshakes += [lab.handshake() for _ in range(_MARKS)]
        lab.sleep(0.001)
        timed_s = self._timer.times_s(marks)
        assert timed_s is not None, "the device is idle"
        on_host = between(handshakes)
        earliest_s, latest_s = ([on_host(at_s) for at_s in lab.device_s(stamps)] for stamps in (before, after))
        errors_s = np.array(timed_s) - np.clip(timed_s, earliest_s, latest_s)
        self._looks.append((lab.now_s() - self._first_s, errors_s.tolist()))
        self._handshakes += handshakes

    def outcome(self) -> Outcome:
        """Judge all looks; at least five minutes lie between the first and the last."""
        while self._lab.now_s() - self._first_s < SPAN_S:
            self._lab.sleep(_LOOK_EVERY_S)
            self.look()
        self._timer.close()
        at_s = np.array([at for at, _ in self._looks])
        middle_s = np.array([np.median(errors) for _, errors in self._looks])
        worst_s = max(abs(error) for _, errors in self._looks for error in errors)
        drift_s = float(np.polyfit(at_s, middle_s, 1)[0]) * SPAN_S
        offsets = np.array([[one.device_s, one.offset_s] for one in self._handshakes])
        offsets -= offsets[0]
        figures = {
            "worst_us": worst_s * 1e6,
            "drift_in_5_min_us": drift_s * 1e6,
            "looks": len(self._looks),
            "device_clock_ppm": float(np.polyfit(offsets[:, 0], offsets[:, 1], 1)[0]) * 1e6,
            "handshake_doubt_us": percentile([one.doubt_s for one in self._handshakes], 50) * 1e6,
        }
        return judged(
            NAME,
            figures,
            Limit(worst_s < _WORST_S, f"device time is {worst_s * 1e6:.0f} us off, limit 100 us"),
            Limit(abs(drift_s) < _WORST_S, f"device time drifts by {drift_s * 1e6:.0f} us in 5 minutes, limit 100 us"),
        )


def device_time(lab: Lab) -> Outcome:
    """Compare the two clocks for five minutes."""
    watch = TimeWatch(lab)
    watch.look()
    return watch.outcome()
