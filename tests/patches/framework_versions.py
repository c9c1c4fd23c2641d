"""The framework versions that the hooks are tested on, and how a test gets one that is not installed."""

import os
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

DEEPSPEED = ("0.16.9", "0.18.9", "0.19.8")
MEGATRON_WHEELS = ("0.12.3", "0.13.1", "0.14.0", "0.15.3", "0.16.1")
# These come as sources alone: each release and its revision in the project's public repository.
MEGATRON_SOURCES = {
    "0.17.1": "core_v0.17.1",
    "0.18.0": "core_v0.18.0",
    "0.18.2": "core_v0.18.2",
    "0.19.0": "core_v0.19.0",
    "0.20.0": "d98e8a64dd",
}
OWN_VERSIONS = {"0.19.0": "0.19.1"}  # where the sources of a release call themselves another one
MEGATRON = (*MEGATRON_WHEELS, *MEGATRON_SOURCES)
OLDEST_AND_NEWEST = (*DEEPSPEED, MEGATRON_WHEELS[0], MEGATRON_WHEELS[-1], MEGATRON[-1])
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "perseus_ds_matrix"
SOURCES = Path(os.environ.get("PERSEUS_DS_MEGATRON_SOURCES", Path(__file__).parents[3] / "shared" / "megatron-lm"))
REPOSITORY = "https://codeload.github.com/NVIDIA/Megatron-LM/tar.gz"


def wanted(versions: tuple[str, ...]) -> tuple[str, ...]:
    """Return those to test now: ``PERSEUS_DS_MATRIX`` is ``all`` or a version; by default not all are."""
    choice = os.environ.get("PERSEUS_DS_MATRIX")
    return tuple(one for one in versions if (one in OLDEST_AND_NEWEST if choice is None else choice in (one, "all")))


def python_path(package: str, wanted_version: str) -> str | None:
    """Return the directory that has this version; None: the environment itself has it. Installs it once."""
    if package == "megatron-core" and wanted_version in MEGATRON_SOURCES:
        return str(megatron_sources(wanted_version))
    try:
        if version(package) == wanted_version:
            return None
    except PackageNotFoundError:
        pass

    def install(directory: Path) -> None:
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(directory))
        done = subprocess.run([*pip, f"{package}=={wanted_version}"], capture_output=True, text=True, timeout=200)
        if "No matching distribution" in done.stderr:
            pytest.skip(f"pip cannot reach {package}=={wanted_version}: {done.stderr.splitlines()[-1]}")
        assert done.returncode == 0, done.stderr

    return str(_cached(f"{package}-{wanted_version}", install))


def megatron_sources(release: str) -> Path:
    """Return the directory with this release's sources, ``pretrain_gpt.py`` and all.

    They come from an archive in ``PERSEUS_DS_MEGATRON_SOURCES``, else from the public repository. Without either the
    test is skipped.
    """
    revision = MEGATRON_SOURCES.get(release, f"core_v{release}")

    def unpack(directory: Path) -> None:
        found = sorted(SOURCES.glob(f"megatron-lm-*{revision.removeprefix('core_v')}.tar.*"))
        try:
            archive = found[0] if found else urllib.request.urlretrieve(f"{REPOSITORY}/{revision}")[0]
        except OSError as error:
            pytest.skip(f"no sources of Megatron-LM {release} in PERSEUS_DS_MEGATRON_SOURCES: {error}")
        with tarfile.open(archive) as content:
            content.extractall(directory, filter="data")

    (top,) = _cached(f"megatron-lm-{release}", unpack).iterdir()
    return top


def _cached(name: str, make: Callable[[Path], None]) -> Path:
    """Return a directory of the cache, made once, whoever else makes it now."""
    directory = CACHE / name
    if not directory.exists():
        partial = directory.with_suffix(f".{os.getpid()}")
        make(partial)
        if directory.exists():
            shutil.rmtree(partial)
        else:
            partial.rename(directory)
    return directory


def launch(script: str, ranks: int, out: Path, python_path: str | None) -> None:
    """Run a script of this directory on some ranks; it writes what it finds to ``out``."""
    from by_hand import by_hand  # here, as nox reads this file without the path of the tests

    done = by_hand(ranks, Path(__file__).with_name(script), out, PYTHONPATH=python_path or "", PYTHONWARNINGS="ignore")
    assert done.returncode == 0, done.stdout
