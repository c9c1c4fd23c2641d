"""A library leaves logging to the program until it is asked."""

import subprocess
import sys
import time

import pytest

from perseus_ds.console import ProgressLine, say_why_it_ends

IMPORT_ALL = "import logging, perseus_ds, perseus_ds.console, perseus_ds.runtime;"


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_importing_changes_no_logging() -> None:
    done = run(f"{IMPORT_ALL} log = logging.getLogger('perseus_ds'); log.warning('unheard'); print(log.propagate)")
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_program_that_handles_the_log_keeps_its_way() -> None:
    done = run(
        f"{IMPORT_ALL} logging.basicConfig(format='mine: %(message)s')\n"
        "logging.getLogger('perseus_ds').warning('heard once')"
    )
    assert done.stderr == "mine: heard once\n"
    done = run(
        f"{IMPORT_ALL} log = logging.getLogger('perseus_ds'); log.addHandler(logging.StreamHandler())\n"
        "perseus_ds.console.show_log(); log.warning('heard once')"
    )
    assert done.stderr == "heard once\n"


def test_install_shows_the_log_once_even_where_the_framework_logs_to_the_root() -> None:
    code = (
        f"{IMPORT_ALL} logging.basicConfig(); perseus_ds.install(); perseus_ds.install()\n"
        "logging.getLogger('perseus_ds').warning('heard once')"
    )
    done = run(code, PERSEUS_DS_DISABLE="1")
    assert done.stderr.splitlines().count("[perseus_ds] heard once") == 1
    assert "WARNING" not in done.stderr


@pytest.mark.parametrize(("level", "lines"), [("DEBUG", ["[perseus_ds] fine"]), ("INFO", [])])
def test_the_log_level_is_an_environment_variable(level: str, lines: list[str]) -> None:
    code = f"{IMPORT_ALL} perseus_ds.console.show_log(); logging.getLogger('perseus_ds').debug('fine')"
    assert run(code, PERSEUS_DS_LOG_LEVEL=level).stderr.splitlines() == lines


def test_without_a_terminal_progress_is_a_line_every_few_steps(log_lines) -> None:
    progress = ProgressLine("profiling", total=10, every=5)
    told = [step for step in range(1, 11) if progress.to(step)]
    progress.close()
    assert told == [1, 5, 10]
    assert log_lines.messages[1] == "profiling [##########..........] 5/10"


def test_progress_beyond_the_total_makes_it_grow(log_lines) -> None:
    ProgressLine("profiling", total=10).to(20)
    assert log_lines.messages == ["profiling [####################] 20/20"]


@pytest.mark.parametrize("rank", ["0", "3"])
def test_why_the_program_ends_is_told_by_rank_0_at_once_and_by_others_that_still_live_later(rank, monkeypatch, capsys):
    waits_s = []
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setattr(time, "sleep", waits_s.append)
    say_why_it_ends(ValueError("no such file"))
    assert waits_s == ([] if rank == "0" else [10.0])
    assert capsys.readouterr().err == "perseus_ds: no such file\n"
