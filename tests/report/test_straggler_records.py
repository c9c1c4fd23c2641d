"""What is kept of a straggler, from its onset until all ranks have returned."""

import numpy as np
import pytest
from made_up_plans import first_table

from perseus_ds.coordination.events import PlanSwitched, StragglerChanged
from perseus_ds.report.straggler_records import StragglerRecords, described

HEALTHY, SLOW = ((1.0, 1.0), (1.0, 1.0)), ((1.0, 1.0), (1.0, 1.3))
LASTED = ((0, 0), (0, 2))
PLANS = first_table(2).choose(np.ones((2, 2)))


def test_a_straggler_is_kept_from_its_first_slow_iteration_to_the_return_of_all_ranks():
    found = StragglerRecords()
    (begun,), ended = found.changed(StragglerChanged(12, 10, SLOW, LASTED, 1.4), recovery_iterations=2)
    assert ended == []
    assert (begun.pipeline, begun.stage, begun.slowdown, begun.t_prime_s) == (1, 1, 1.3, 1.4)
    assert begun.onset_iteration == 9, "slow for two iterations when it was heard of in the tenth"
    found.switched(PlanSwitched(12, PLANS))
    assert (begun.switched_iteration, begun.returned_iteration) == (12, None)
    assert begun.t_opt_s == pytest.approx(max(plan.time_s for plan in PLANS))
    begun_again, (over,) = found.changed(StragglerChanged(30, 28, HEALTHY, LASTED, 1.0), recovery_iterations=2)
    assert (begun_again, over.recovered_iteration) == ([], 27)
    found.switched(PlanSwitched(31, PLANS))
    assert found.records == [begun]
    assert begun.returned_iteration == 31


def test_a_straggler_that_lasts_is_told_once():
    found = StragglerRecords()
    found.changed(StragglerChanged(12, 10, SLOW, LASTED, 1.4), 2)
    assert found.changed(StragglerChanged(14, 12, SLOW, LASTED, 1.4), 2) == ([], [])


def test_a_ceiling_is_told_as_a_clock_and_a_slowdown_as_a_factor():
    assert (described(1.3), described(-1200.0)) == (1.3, "1200 MHz")
