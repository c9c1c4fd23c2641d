"""Compiling ahead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from perseus_ds.frontier import kernels, late_search
from perseus_ds.frontier.chains import choose_chains
from perseus_ds.frontier.flow import advance
from perseus_ds.frontier.late_moves import drop_late, hasten, save
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
def called(monkeypatch: pytest.MonkeyPatch, cache: Path) -> list[bool]:
    """For each time the kernels are called: whether the index is still there."""
    calls: list[bool] = []
    monkeypatch.setattr(kernels, "_call_kernels", lambda: calls.append(cache.exists()))
    return calls


def test_kernels_newer_than_all_sources_are_kept(called: list[bool]) -> None:
    kernels.load_kernels()
    assert called == [True]


def test_kernels_older_than_a_source_that_they_call_are_forgotten_before_they_are_loaded(
    cache: Path, called: list[bool]
) -> None:
    source = cache.with_name("flow_search.py")
    later_s = cache.stat().st_mtime + 1
    os.utime(source, (later_s, later_s))
    kernels.load_kernels()
    assert called == [False]


@pytest.mark.compiled
def test_a_plan_needs_no_kernel_that_was_not_compiled() -> None:
    kernels.load_kernels()
    for kernel in (advance, choose_chains, search, fill, hasten, save, drop_late, late_search._anneal):
        assert kernel.stats.cache_hits or kernel.stats.cache_misses


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
