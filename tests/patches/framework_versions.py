"""The framework versions that the hooks are tested on, and how a test gets one that is not installed."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

DEEPSPEED = ("0.16.9", "0.18.9", "0.19.8")
MEGATRON = ("0.12.3", "0.13.1", "0.14.0", "0.15.3", "0.16.1")
OLDEST_AND_NEWEST = (*DEEPSPEED, MEGATRON[0], MEGATRON[-1])
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "perseus_ds_matrix"


def wanted(versions: tuple[str, ...]) -> tuple[str, ...]:
    """Return those to test now: ``PERSEUS_DS_MATRIX`` is ``all`` or a version; by default not all are."""
    choice = os.environ.get("PERSEUS_DS_MATRIX")
    return tuple(one for one in versions if (one in OLDEST_AND_NEWEST if choice is None else choice in (one, "all")))


def python_path(package: str, wanted_version: str) -> str | None:
    """Return the directory that has this version; None: the environment itself has it. Installs it once."""
    try:
        if version(package) == wanted_version:
            return None
    except PackageNotFoundError:
        pass
    directory = CACHE / f"{package}-{wanted_version}"
    if not directory.exists():
        partial = directory.with_suffix(f".{os.getpid()}")
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(partial))
        done = subprocess.run([*pip, f"{package}=={wanted_version}"], capture_output=True, text=True, timeout=200)
        if "No matching distribution" in done.stderr:
            pytest.skip(f"pip cannot reach {package}=={wanted_version}: {done.stderr.splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
        if directory.exists():
            shutil.rmtree(partial)
        else:
            partial.rename(directory)
    return str(directory)


def launch(script: str, ranks: int, out: Path, python_path: str | None) -> None:
    """Run a script of this directory on some ranks; it writes what it finds to ``out``."""
    from by_hand import by_hand  # here, as nox reads this file without the path of the tests

    done = by_hand(ranks, Path(__file__).with_name(script), out, PYTHONPATH=python_path or "", PYTHONWARNINGS="ignore")
    assert done.returncode == 0, done.stdout
