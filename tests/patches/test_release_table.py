"""The page of releases and modes: what is kept makes it, and it has every release that is tested."""

import framework_versions
import pytest
from release_table import PAGE, Result, page

MEGATRON, DEEPSPEED, DAY = "test_megatron_hooks", "test_deepspeed_hooks", "2026-11-22"
LINE = "megatron-core 0.9.0: --graph hides forwards and backwards"
FOUND = [
    Result(MEGATRON, "0.10.0", "1F1B", "passed", "", DAY),
    Result(MEGATRON, "0.9.0", "1F1B", "passed", "", DAY),
    Result(MEGATRON, "0.9.0", "--graph", "passed", LINE, DAY),
    Result(MEGATRON, "0.10.0", "--graph", "skipped", "Skipped: --graph: a release that has no such mode", DAY),
    Result(DEEPSPEED, "0.19.8", "topology", "passed", "", "2026-11-21"),
]


def test_a_mode_works_or_is_refused_by_a_line_or_has_not_run():
    lines = page(FOUND).splitlines()
    assert "It ran from 2026-11-21 to 2026-11-22." in lines
    assert "| | 0.9.0 | 0.10.0 |" in lines
    assert "| 1F1B | works | works |" in lines
    assert "| --graph | refused | – |" in lines
    assert "- --graph: `megatron-core …: --graph hides forwards and backwards`" in lines
    assert "- --graph: a release that has no such mode" in lines
    assert "| topology | works |" in lines


def test_a_mode_that_one_of_its_tests_has_skipped_on_a_release_still_works():
    skipped = Result(MEGATRON, "0.9.0", "1F1B", "skipped", "Skipped: half of it", DAY)
    assert "| 1F1B | works | works |" in page([*FOUND, skipped])


def test_nothing_is_published_after_a_failure():
    with pytest.raises(ValueError, match=r"0\.10\.0: 1F1B"):
        page([*FOUND, Result(MEGATRON, "0.10.0", "1F1B", "failed", "", DAY)])


@pytest.mark.parametrize("name", ["MEGATRON", "DEEPSPEED"])
def test_every_release_that_is_tested_stands_on_the_page(name):
    assert f"| | {' | '.join(getattr(framework_versions, name))} |" in PAGE.read_text()
