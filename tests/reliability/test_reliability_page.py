"""The page docs/reliability.md: every row has a test, and says what that has found."""

import importlib
from pathlib import Path

import pytest
from reliability_page import FRAMEWORKS, PAGE, Result, page, rows

FOUND = [
    Result("A rank pauses", "all pause", "megatron", "3 iterations", "passed", "2026-11-24"),
    Result("A rank pauses", "all pause", "deepspeed", "2 iterations", "passed", "2026-11-23"),
]


def marks(module) -> set[str]:
    """The faults of a file's tests."""
    found = []
    for name, test in vars(module).items():
        if name.startswith("test_"):
            for mark in getattr(test, "pytestmark", []):
                found += [mark]
                if mark.name == "parametrize":
                    found += [one for case in mark.args[1] for one in getattr(case, "marks", ())]
    return {mark.args[0] for mark in found if mark.name == "fault"}


def test_every_row_has_a_test():
    files = Path(__file__).parent.glob("test_*.py")
    faults = set().union(*(marks(importlib.import_module(file.stem)) for file in files))
    assert len(faults) >= 15
    assert rows(PAGE.read_text()) <= {(fault, name) for fault in faults for name in FRAMEWORKS.values()}


def test_the_page_has_what_the_tests_have_told():
    lines = page(FOUND).splitlines()
    assert "It ran from 2026-11-23 to 2026-11-24, on two cores." in lines
    assert lines[-2:] == [
        "| A rank pauses | DeepSpeed | all pause | 2 iterations |",
        "| A rank pauses | Megatron-Core | all pause | 3 iterations |",
    ]
    assert rows(page(FOUND)) == {("A rank pauses", "DeepSpeed"), ("A rank pauses", "Megatron-Core")}


@pytest.mark.parametrize("outcome", ["failed", "skipped"])
def test_nothing_is_published_unless_all_have_passed(outcome):
    with pytest.raises(ValueError, match=r"A rank stops \(megatron\)"):
        page([*FOUND, Result("A rank stops", "…", "megatron", "", outcome, "2026-11-24")])
