"""Trainers that die: real processes above the simulated driver."""

import math
import subprocess
import sys

import pytest

from perseus_ds.silicon.killed import gone_s, judge, killed


@pytest.mark.against_the_clock("a host that stalls keeps a keeper from ending within a second")
def test_the_keeper_goes_with_its_trainer(make_lab):
    outcome = killed(make_lab())
    assert outcome.passed, outcome.why


def test_what_is_left_is_told():
    assert judge(0.1, 0.1, 0).passed
    assert "outlived SIGKILL" in judge(1.5, 0.1, 0).why
    assert "outlived an exception" in judge(0.1, math.inf, 0).why
    assert "2 contexts are left" in judge(0.1, 0.1, 2).why


def test_a_process_that_stays_is_waited_for_in_vain_and_a_dead_one_is_not():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert gone_s(process.pid, 0.2) == math.inf
    process.kill()
    assert gone_s(process.pid, 30.0) < 30.0, "nobody has waited for it yet"
    process.communicate()
    assert gone_s(process.pid, 0.2) < 0.2
