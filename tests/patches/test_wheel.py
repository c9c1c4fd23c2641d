"""The wheel has everything, the patches beside the package included."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = """
import perseus_ds, perseus_ds.patches, pathlib, sys
from perseus_ds.patches.deepspeed import DEEPSPEED
here = pathlib.Path(sys.argv[1])
for module in (perseus_ds, perseus_ds.patches):
    assert pathlib.Path(module.__file__).is_relative_to(here), module
assert (here / "perseus_ds" / "py.typed").exists()
assert list((here / "perseus_ds" / "simulator" / "profiles").glob("*.csv"))
assert "torch" not in sys.modules and "deepspeed" not in sys.modules
"""


def test_wheel_imports_from_where_it_was_installed(tmp_path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("perseus_ds", "patches"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, source)
    pip = (sys.executable, "-m", "pip", "--quiet")
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, source], check=True)
    (wheel,) = tmp_path.glob("perseus_ds-*.whl")
    site = tmp_path / "site"
    subprocess.run([*pip, "install", "--no-deps", "--target", site, wheel], check=True)
    subprocess.run([sys.executable, "-c", CODE, str(site)], cwd=tmp_path, env={"PYTHONPATH": str(site)}, check=True)
