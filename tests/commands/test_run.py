"""``run`` where Perseus has nothing to do: the script runs, and one line says why nothing else happens."""

import os
import subprocess
import sys

import pytest

from perseus_ds.cli import main


@pytest.mark.parametrize(
    ("arguments", "variables", "code"),
    [
        ((), {}, "not-configured"),
        (("--perseus", "perseus.yaml"), {}, "nothing-seen"),
        (("--perseus", "perseus.yaml"), {"PERSEUS_DS_DISABLE": "1"}, "disabled"),
        ((), {"RANK": "1"}, None),
    ],
)
def test_one_line_says_why_perseus_does_nothing(tmp_path, arguments, variables, code):
    (tmp_path / "perseus.yaml").write_text("run_dir: run\nsimulator: {}\n")
    (tmp_path / "train.py").write_text("import sys\nprint('trained with', sys.argv[1:])\n")
    done = subprocess.run(
        [sys.executable, "-m", "perseus_ds", "run", "train.py", *arguments, "--steps", "3"],
        cwd=tmp_path, env=os.environ | variables, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained with ['--steps', '3']\n"
    lines = [line for line in done.stderr.splitlines() if line.startswith("[perseus_ds]")]
    assert [line.rpartition(" ")[2] for line in lines] == ([f"[{code}]"] if code else [])


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["--dry-run"], 2), (["--dry-run", "--help"], 0)])
def test_without_a_script_the_usage_is_told(capsys, arguments, code):
    assert main(["run", *arguments]) == code
    assert capsys.readouterr().out.startswith("usage: perseus-ds run [--dry-run] SCRIPT")
