"""The check as a whole: the command, its files, and experiments that raise."""

import json

import pynvml
import pytest

from perseus_ds.device.reading_only import READING_ONLY_VARIABLE
from perseus_ds.silicon import check as module
from perseus_ds.silicon.__main__ import main
from perseus_ds.silicon.check import TIME, check


@pytest.fixture(autouse=True)
def _guard_goes_with_the_test(monkeypatch):
    monkeypatch.setenv(READING_ONLY_VARIABLE, "")
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", pynvml._nvmlGetFunctionPointer)


@pytest.mark.against_the_clock("a host that stalls keeps a keeper from ending within a second")
def test_the_whole_check_passes_in_virtual_time_and_only_reads(tmp_path, capsys, monkeypatch):
    assert main(["--virtual", "-o", str(tmp_path)]) == 0, capsys.readouterr().out
    found = json.loads((tmp_path / "gpu-check.json").read_text())
    assert {one["name"] for one in found["experiments"]} == {*module.EXPERIMENTS, TIME}
    assert "nothing was measured on silicon" in capsys.readouterr().out
    assert "virtual" in (tmp_path / "silicon.md").read_text()
    assert pynvml._nvmlGetFunctionPointer.only_reads


def test_one_experiment_alone_and_one_that_there_is_not(tmp_path, capsys):
    assert main(["position", "--virtual", "-o", str(tmp_path)]) == 0
    assert "1 of 1 passed" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert "no experiment nothing" in capsys.readouterr().err


def test_an_experiment_that_raises_has_failed_and_the_next_one_runs(make_lab, monkeypatch):
    def broken(lab):
        raise ValueError("no answer")

    monkeypatch.setitem(module.EXPERIMENTS, "position", broken)
    lines = []
    found = check(make_lab, ["position", "cost of reading"], lines.append)
    assert [one["passed"] for one in found["experiments"]] == [False, True]
    assert "position: FAILED: ValueError: no answer" in lines[0]


def test_what_there_is_no_time_for_has_failed(make_lab, monkeypatch):
    monkeypatch.setattr(module, "_BUDGET_S", 0.0)
    (one,) = check(make_lab, ["position"], print)["experiments"]
    assert (one["passed"], one["why"]) == (False, "left out: the nine minutes are over")
