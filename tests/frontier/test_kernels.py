"""Compiling ahead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from perseus_ds.frontier import kernels
from perseus_ds.frontier.chains import choose_chains
from perseus_ds.frontier.flow import advance
from perseus_ds.frontier.search import fill, search


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What numba keeps: the index of one kernel, made an hour after the sources."""
    (tmp_path / "flow.py").touch()
    (tmp_path / "flow_search.py").touch()
    index = tmp_path / "flow.advance-33.py311.nbi"
    index.touch()
    later_s = index.stat().st_mtime + 3600
    os.utime(index, (later_s, later_s))
    monkeypatch.setattr(kernels, "__file__", str(tmp_path / "kernels.py"))
    monkeypatch.setattr(kernels, "advance", SimpleNamespace(stats=SimpleNamespace(cache_path=str(tmp_path))))
    return index


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that were started."""
    commands: list[str] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **options: commands.append(" ".join(command)))
    return commands


def test_what_is_compiled_already_is_not_compiled_again(cache: Path, started: list[str]) -> None:
    kernels.compile_isolated()
    assert started == []
    assert cache.exists()


def test_kernels_older_than_a_source_that_they_call_are_compiled_by_another_process(
    cache: Path, started: list[str]
) -> None:
    source = cache.with_name("flow_search.py")
    later_s = cache.stat().st_mtime + 1
    os.utime(source, (later_s, later_s))
    kernels.compile_isolated()
    assert not cache.exists()
    assert "perseus_ds.frontier.kernels" in started[0]


def test_where_nothing_was_compiled_another_process_does(cache: Path, started: list[str]) -> None:
    cache.unlink()
    kernels.compile_isolated()
    assert len(started) == 1


@pytest.mark.compiled
def test_a_plan_needs_no_kernel_that_was_not_compiled() -> None:
    kernels.compile_kernels()
    for kernel in (advance, choose_chains, search, fill):
        assert kernel.stats.cache_hits or kernel.stats.cache_misses


@pytest.mark.parametrize("error", [OSError("no fork"), subprocess.TimeoutExpired("python", 300)], ids=str)
def test_a_process_that_fails_stops_nobody(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def failing(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(kernels, "_are_kept", lambda: False)
    monkeypatch.setattr(subprocess, "run", failing)
    kernels.compile_isolated()


def test_the_kernel_that_a_trainer_needs_is_loaded_ahead() -> None:
    loaded = (
        "from perseus_ds.frontier.kernels import load_path_kernel\n"
        "from perseus_ds.pipeline.paths import longest_to\n"
        "before = len(longest_to.signatures)\n"
        "load_path_kernel()\n"
        "print(before, len(longest_to.signatures))\n"
    )
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1"]
