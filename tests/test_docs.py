"""The documentation: generated pages are up to date, and every command and every example in it runs."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import launching
import pytest
import yaml

from perseus_ds.config import parse_config
from perseus_ds.messages import CATALOGUE
from perseus_ds.report.metrics import METRICS
from perseus_ds.runtime.simulation import profile_file

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]*) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)```", re.DOTALL)
PROSE = [
    *PAGES,
    *(ROOT / folder / "README.md" for folder in (".", "benchmarks", "examples/megatron_gpt")),
    ROOT / "CONTRIBUTING.md",
]
GENERATED = ("configuration.md", "silicon.md", "troubleshooting.md")


def blocks(language: str) -> list[tuple[str, str, str]]:
    """Page, mark and text of every block of a language."""
    return [
        (page.name, found["mark"] or "", found["text"])
        for page in PAGES
        for found in BLOCK.finditer(page.read_text())
        if found["language"] == language
    ]


def commands(*marks: str) -> list[tuple[str, str]]:
    """Mark and command of every shell line with one of the marks, each command once."""
    lines = {line: mark for _, mark, text in blocks("bash") if mark in marks for line in text.splitlines() if line}
    return [(mark, line) for line, mark in lines.items()]


@pytest.fixture(scope="module")
def user_directory(tmp_path_factory, finished_run) -> Path:
    """What a user has: scripts and configurations of their own, and the run directory of a run that is over."""
    directory = tmp_path_factory.mktemp("user")
    for script, example in (("train.py", "deepspeed_gpt"), ("pretrain_gpt.py", "megatron_gpt")):
        folder = ROOT / "examples" / example
        text = re.sub(r'("--steps", type=int, default=)\d+', r"\g<1>3", (folder / "train.py").read_text())
        (directory / script).write_text(text)
        for name in ("sonnets.txt", "cpu_shim.py"):
            if (folder / name).exists():
                shutil.copy(folder / name, directory)
    shutil.copy(launching.DS_CONFIG, directory / "ds.json")
    shutil.copy(profile_file("gpt3-175b-a100-sxm"), directory)
    (directory / "perseus.yaml").write_text(yaml.safe_dump({"run_dir": "runs/docs", **launching.QUICK}))
    (directory / "launch_scripts").symlink_to(ROOT / "launch_scripts")
    shutil.copytree(finished_run, directory / "runs" / "my-run")
    shutil.copy(finished_run.parent / "output.txt", directory)
    return directory


def run_here(directory: Path, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-ec", command],
        cwd=directory,
        env=launching.environment(MASTER_PORT=str(launching.free_port())),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )


def on_two_ranks(command: str) -> str:
    """The command as two ranks of this host can run it beside other tests."""
    command = re.sub(r"(--num_gpus |--nproc-per-node |GPUS=)4", r"\g<1>2", command)
    port = launching.free_port()
    command = command.replace("deepspeed --num_gpus", f"deepspeed --master_port {port} --num_gpus")
    return command.replace("torchrun --nproc", f"torchrun --master-port {port} --nproc")


@pytest.mark.parametrize("name", GENERATED)
def test_generated_pages_are_what_docs_generate_py_writes(name):
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert (ROOT / "docs" / name).read_text() == generate.PAGES[name](), "run: python docs/generate.py"


def test_every_message_is_in_the_troubleshooting_page():
    headings = set(re.findall(r"^## (\S+)$", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE))
    assert headings == set(CATALOGUE)


def test_every_metric_is_explained():
    explained = (ROOT / "docs" / "watching.md").read_text()
    assert [name for name in METRICS if f"`{name}`" not in explained] == []


def test_every_shell_block_is_run_or_says_why_not():
    known = ("run", "run: exit 0 or 1", "run: launches a training", "run: table")
    unknown = [
        (page, mark) for page, mark, _ in blocks("bash") if mark not in known and not mark.startswith("not run:")
    ]
    assert [entry for entry in unknown if entry[0] not in ("architecture.md", "adding-a-framework-version.md")] == []


def test_yaml_and_json_examples_are_valid_configurations():
    examples = [yaml.safe_load(text) for _, _, text in blocks("yaml")]
    examples += [json.loads(text)["perseus"] for _, _, text in blocks("json")]
    assert [parse_config(data, "docs").run_dir for data in examples] == [Path("runs/my-run")] * len(examples)
    assert len(examples) >= 4


@pytest.mark.launch
@pytest.mark.parametrize(("mark", "command"), commands("run", "run: exit 0 or 1"))
def test_commands_run(user_directory, mark, command):
    done = run_here(user_directory, command)
    assert done.returncode in ((0, 1) if "exit" in mark else (0,)), done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.launch
@pytest.mark.parametrize("command", [command for _, command in commands("run: launches a training")])
def test_commands_that_launch_a_training(user_directory, command):
    shutil.rmtree(user_directory / "runs" / "docs", ignore_errors=True)
    done = run_here(user_directory, on_two_ranks(command))
    assert done.returncode == 0, done.stdout
    under_perseus = "perseus.yaml" in command
    assert ("[perseus_ds] iteration 1: baseline" in done.stdout) == under_perseus, done.stdout
    assert ("[ended-early]" in done.stdout) == under_perseus, "three iterations are too few, and it says so"


def test_the_comparison_s_table_is_what_its_commands_print(tmp_path):
    shutil.copy(profile_file("gpt3-175b-a100-sxm"), tmp_path)
    page = (ROOT / "docs" / "comparison.md").read_text()
    row = re.compile(r"^\| ([a-z-]+) \| ([\d.]+) % \| ([+\d.]+) % \| (\d+) \|$", re.MULTILINE)
    told = {found[1]: [float(value) for value in found.groups()[1:]] for found in row.finditer(page)}
    plans = [json.loads(run_here(tmp_path, command).stdout) for _, command in commands("run: table")]
    assert [plan["planner"] for plan in plans] == list(told)
    for plan in plans:
        chosen, baseline = plan["chosen"], plan["baseline"]
        saving, slowdown, switches = told[plan["planner"]]
        assert 100 * chosen["saving"] == pytest.approx(saving, abs=0.11)
        assert 100 * (chosen["time_s"] / baseline["time_s"] - 1) == pytest.approx(slowdown, abs=0.06)
        assert chosen["switches"] == pytest.approx(switches, rel=0.1)


@pytest.mark.parametrize("text", [text for _, mark, text in blocks("python") if mark == "python"])
def test_python_examples_run(text, tmp_path):
    shutil.copy(profile_file("gpt3-175b-a100-sxm"), tmp_path)
    config = {"run_dir": str(tmp_path / "run"), "simulator": {}}
    (tmp_path / "perseus.yaml").write_text(yaml.safe_dump(config))
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr


def test_the_site_builds_without_a_warning(tmp_path):
    mkdocs = Path(sys.executable).parent / "mkdocs"
    done = subprocess.run(
        [mkdocs, "build", "--strict", "--site-dir", tmp_path], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "install" in (tmp_path / "api" / "index.html").read_text()


def sentences(page: Path) -> list[str]:
    """The sentences of a page as a reader sees them: without code blocks, tables, headings and link targets."""
    text = re.sub(r"```.*?```|<!--.*?-->", "\n\n", page.read_text(), flags=re.DOTALL)
    text = re.sub(r"^(#|\||:::|!\[| {4}options:).*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^ *([-*]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    return [sentence for paragraph in paragraphs for sentence in re.split(r"(?<=[.?!])\**\s", paragraph) if sentence]


def test_no_sentence_is_longer_than_thirty_words():
    counted = sorted(((len(one.split()), page.name, one) for page in PROSE for one in sentences(page)), reverse=True)
    print("\n".join(f"{words} words, {name}: {sentence}" for words, name, sentence in counted[:10]))
    assert len(counted) > 400
    assert [entry for entry in counted if entry[0] > 30] == []


def test_the_architecture_page_names_modules_that_exist():
    text = re.sub(r"```.*?```", "", (ROOT / "docs" / "architecture.md").read_text(), flags=re.DOTALL)
    named = set(re.findall(r"`([\w/]+\.py)`", text))
    modules = [path.relative_to(ROOT / "perseus_ds").as_posix() for path in (ROOT / "perseus_ds").rglob("*.py")]
    assert len(named) > 20
    assert [name for name in named if not any(f"/{module}".endswith(f"/{name}") for module in modules)] == []
