"""A short piece of ``make soak``: a disturbed job has the losses of one without Perseus, and grows nowhere."""

import importlib
import json
import sys
from itertools import pairwise

import pytest
from launching import ROOT

from perseus_ds.config.model import StragglerConfig

sys.path.append(str(ROOT / "benchmarks"))
soak, soak_plan = importlib.import_module("soak"), importlib.import_module("soak_plan")


@pytest.mark.launch
def test_a_disturbed_job_trains_as_without_perseus_and_grows_nowhere(tmp_path):
    soak.main(["--iterations", "420", "--minutes", "4", "--seed", "14", "--directory", str(tmp_path / "soak")])
    plan = soak_plan.read_plan(tmp_path / "soak" / "plan.json")
    found = {one["what"]: one for one in json.loads((tmp_path / "soak" / "findings.json").read_text())["findings"]}
    assert len(plan) >= 3
    # The rest needs longer, and more cores.
    names = [
        name for name in found if name.startswith(("equal", "ended", "absences", "memory", "descriptors", "threads"))
    ]
    assert len(names) > 15
    assert [found[name] for name in names if not found[name]["good"]] == []


def test_a_seed_gives_the_same_plan_of_disturbances_that_do_not_overlap():
    plan = soak_plan.make_plan(20_000, ranks=2, seed=3)
    assert plan == soak_plan.make_plan(20_000, ranks=2, seed=3) != soak_plan.make_plan(20_000, ranks=2, seed=4)
    assert {one.kind for one in plan} == {*soak_plan._WEIGHTS}
    assert all(before.end < after.begin for before, after in pairwise(plan))
    assert 0.2 < sum(soak_plan.is_quiet(plan, number) for number in range(20_000)) / 20_000 < 0.8


def test_a_calm_job_has_three_slowdowns_and_a_ceiling_far_apart():
    plan = soak_plan.make_rare_plan(2_000, ranks=2)
    slow = [("straggler", 1.1), ("straggler", 1.3), ("straggler", 1.5), ("ceiling", 0.7)]
    assert [(one.kind, one.value) for one in plan] == slow
    # By then the stage that was slow is trusted again.
    assert all(after.begin - before.end > StragglerConfig().calm_iterations for before, after in pairwise(plan))
    assert plan[0].begin > soak_plan.SETTLED
    assert plan[-1].end < 2_000
