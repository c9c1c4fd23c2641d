"""What is published: wheel and source distribution, without torch, DeepSpeed and Megatron."""

import ast
import importlib.metadata
import os
import pkgutil
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOREIGN = ("torch", "deepspeed", "megatron")


def checkout() -> list[str]:
    """The files that git holds or would hold."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("what is published is built from a git checkout")
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("dist")
    tree = tmp_path_factory.mktemp("tree")
    for name in checkout():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, tree]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


@pytest.fixture(scope="module")
def clean_python(distributions, tmp_path_factory) -> Path:
    """A Python of its own with the wheel, and links to its dependencies alone."""
    directory = tmp_path_factory.mktemp("clean")
    venv.create(directory, with_pip=False, symlinks=True)
    (site,) = directory.glob("lib/python*/site-packages")
    with zipfile.ZipFile(distributions["wheel"]) as archive:
        archive.extractall(site)
    ours = Path(importlib.metadata.distribution("numpy").locate_file(""))
    for name in dependencies("perseus_ds"):
        for file in importlib.metadata.files(name) or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (site / top).exists():
                os.symlink(ours / top, site / top)
    return directory / "bin" / "python"


def dependencies(name: str) -> set[str]:
    """All distributions that a plain installation brings, extras left out."""
    from packaging.requirements import Requirement

    found: set[str] = set()
    waiting = [name]
    while waiting:
        for text in importlib.metadata.requires(waiting.pop()) or ():
            one = Requirement(text)
            if one.name not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
                found.add(one.name)
                waiting.append(one.name)
    return found


def clean_run(python: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | variables
    return subprocess.run([python, *arguments], capture_output=True, text=True, env=environment, cwd=python.parent)


def test_the_wheel_holds_every_package_and_every_data_file(distributions):
    with zipfile.ZipFile(distributions["wheel"]) as archive:
        held = set(archive.namelist())
    shipped = {".py", ".csv", ".c", ".html", ".typed"}
    files = [path for path in (ROOT / "perseus_ds").rglob("*.*") if path.suffix in shipped]
    assert len(files) > 100
    assert {str(path.relative_to(ROOT)) for path in files} <= held


def test_the_source_distribution_is_the_checkout(distributions):
    """Tests, documentation and examples too: whoever packages it for a distribution runs and ships them."""
    with tarfile.open(distributions["sdist"]) as archive:
        held = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    folders = ("perseus_ds", "tests", "docs", "examples", "benchmarks", "launch_scripts", "requirements")
    files = {name for name in checkout() if name.startswith(tuple(f"{folder}/" for folder in folders))}
    assert len(files) > 200
    # Nothing is missing, such as a conftest.py or a drawing, and nothing has slipped in.
    assert {name for name in held if name.partition("/")[0] in folders} == files
    assert {"pyproject.toml", "README.md", "LICENSE", "NOTICE", "Makefile"} <= held


def test_every_module_imports_from_a_bare_checkout_without_any_framework(tmp_path):
    """PYTHONPATH alone, as on a cluster whose file system holds the sources; what runs within a job needs torch."""
    code = """
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys(("torch", "deepspeed", "megatron")))  # not to be found
import perseus_ds
for found in pkgutil.walk_packages(perseus_ds.__path__, "perseus_ds."):
    if not found.name.endswith("__main__"):
        try:
            print(importlib.import_module(found.name).__file__)
        except ModuleNotFoundError as error:
            print(found.name.split(".")[1], "needs", error.name.split(".")[0])
"""
    (tmp_path / "perseus_ds").symlink_to(ROOT / "perseus_ds")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    imported = [line for line in done.stdout.splitlines() if " needs " not in line]
    assert len(imported) > 80
    assert {Path(file).is_relative_to(tmp_path) for file in imported} == {True}
    assert str(tmp_path / "perseus_ds" / "patches" / "deepspeed.py") in imported
    refused = {line for line in done.stdout.splitlines() if " needs " in line}
    assert refused == {"coordination needs torch", "runtime needs torch", "silicon needs torch"}


def test_the_help_comes_at_once(clean_python):
    assert clean_run(clean_python, "-m", "perseus_ds", "--help").returncode == 0
    times = {("-c", "import argparse, json"): [], ("-m", "perseus_ds", "--help"): []}
    for _ in range(5):
        for arguments, taken in times.items():
            begin = time.perf_counter()
            clean_run(clean_python, *arguments)
            taken.append(time.perf_counter() - begin)
    bare, help_ = (min(taken) for taken in times.values())
    # On a machine that is busy even a bare interpreter takes long.
    assert help_ < max(0.5, 4 * bare)


def test_without_frameworks_the_offline_commands_work(clean_python, tmp_path):
    for package in FOREIGN:
        assert clean_run(clean_python, "-c", f"import {package}").returncode != 0
    profile = ROOT / "perseus_ds" / "simulator" / "profiles" / "gpt3-175b-a100-sxm.csv"
    size = ("--microbatches", "2", "--points", "1")
    # Interpreted, because the kernels of this copy would have to be compiled.
    planned = clean_run(clean_python, "-m", "perseus_ds", "plan", str(profile), *size, "--json", NUMBA_DISABLE_JIT="1")
    assert planned.returncode == 0, planned.stderr
    hooks = clean_run(
        clean_python, "-c", "import perseus_ds.patches as hooks; print(hooks.__file__, hooks.install_all)"
    )
    assert hooks.returncode == 0, hooks.stderr
    assert hooks.stdout.startswith(str(clean_python.parents[1])), "the wheel's, not the checkout's"
    doctor = clean_run(clean_python, "-m", "perseus_ds", "doctor")
    assert doctor.returncode == 1
    assert "neither DeepSpeed nor Megatron-Core" in doctor.stdout


def exported(tree: ast.Module) -> set[str]:
    """The names in a module's ``__all__``."""
    assigned = [
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return set(ast.literal_eval(assigned[0])) if assigned else set()


def test_whatever_is_public_is_in_all():
    """All functions and classes without an underscore, and whatever else one module takes from another."""
    trees = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(path.read_text())
        for path in (ROOT / "perseus_ds").rglob("*.py")
    }
    public = {
        (name, node.name)
        for name, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    }
    taken = {
        (node.module, alias.name)
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in trees
        for alias in node.names
        if f"{node.module}.{alias.name}" not in trees
    }
    listed = {(name, one) for name, tree in trees.items() for one in exported(tree)}
    assert len(public) > 200
    assert sorted((public | taken) - listed - {("perseus_ds", "__version__")}) == []


def test_whatever_is_in_all_exists():
    import perseus_ds

    assert sorted(perseus_ds.__all__) == ["Config", "add_config_arguments", "install", "set_objective", "set_straggler"]
    for found in pkgutil.walk_packages(perseus_ds.__path__, "perseus_ds."):
        if not found.name.endswith("__main__"):
            module = importlib.import_module(found.name)
            assert [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)] == [], found.name
