"""A process of its own finds this very package and the standard library, whatever lies about."""

import subprocess
from pathlib import Path

import pytest

import perseus_ds
from perseus_ds import isolated

TRAP = "raise RuntimeError(f'{__file__} was taken')"


@pytest.fixture
def site(tmp_path, monkeypatch) -> Path:
    """This package in a directory with outdated backports beside it."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "perseus_ds").symlink_to(Path(perseus_ds.__file__).parent)
    for name in ("dataclasses", "pathlib"):
        (site / f"{name}.py").write_text(TRAP)
    monkeypatch.setattr(isolated, "_ROOT", site)
    return site


@pytest.fixture
def own_files(tmp_path) -> Path:
    """A user's directory with names that we use too."""
    own_files = tmp_path / "own_files"
    (own_files / "perseus_ds").mkdir(parents=True)
    for name in ("perseus_ds/__init__", "argparse", "runpy", "pynvml"):
        (own_files / f"{name}.py").write_text(TRAP)
    return own_files


@pytest.mark.parametrize("safe_path", ["", "1"])
def test_neither_neighbours_nor_the_users_files_are_taken(site, own_files, safe_path, monkeypatch):
    monkeypatch.setenv("PYTHONSAFEPATH", safe_path)
    command = [*isolated.command("perseus_ds.device.keeper"), "--help"]
    done = subprocess.run(command, cwd=own_files, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "--calibrate" in done.stdout
    assert done.stderr == ""


def test_it_is_the_package_that_starts_it_that_is_run(tmp_path, monkeypatch):
    other = tmp_path / "perseus_ds"
    other.mkdir()
    (other / "__init__.py").touch()
    (other / "told.py").write_text("import sys; print(__name__, sys.argv[1:])")
    monkeypatch.setattr(isolated, "_ROOT", tmp_path)
    command = [*isolated.command("perseus_ds.told"), "--fd", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "__main__ ['--fd', '3']", done.stderr
