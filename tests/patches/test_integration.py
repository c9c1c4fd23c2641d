"""The rules of every integration, on a small framework of two functions."""

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hook_spy import Spy

from perseus_ds.messages import PerseusError
from perseus_ds.patches.integration import Integration, instruction, reported
from perseus_ds.patches.target import Target
from perseus_ds.pipeline.events import Topology
from perseus_ds.pipeline.kinds import Kind

FRAMEWORK = """
__version__ = "1.5.2"

def schedule(microbatches):
    return [step(number) for number in range(microbatches)]

def step(number):
    return 2 * number
"""
TOPOLOGY = Topology(rank=0, world_size=1, pipeline=0, pipelines=1, stage=0, stages=1)


def wrap_schedule(original, integration):
    def schedule(microbatches):
        integration.listener.iteration_begin(TOPOLOGY, microbatches, True)
        return original(microbatches)

    return schedule


def wrap_step(original, integration):
    return reported(integration, original, lambda number: instruction(Kind.FORWARD, number, 0))


def integrate(tested: str | None = ">=1.4,<2", **parameters: tuple[str, ...]) -> Integration:
    """Return the integration of the small framework; ``parameters`` and ``calls`` are those wanted of its functions."""
    return Integration(
        "toyframe",
        "toyframe",
        tested,
        lambda: [
            Target("toyframe", "schedule", parameters.get("schedule", ()), wrap_schedule, parameters.get("calls", ())),
            Target("toyframe", "step", parameters.get("step", ()), wrap_step),
        ],
    )


@pytest.fixture
def toyframe_path(tmp_path, monkeypatch) -> Path:
    """A directory on the path with the framework, which is not imported yet."""
    (tmp_path / "toyframe.py").write_text(FRAMEWORK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toyframe", raising=False)
    yield tmp_path
    sys.modules.pop("toyframe", None)


def import_toyframe() -> ModuleType:
    return importlib.import_module("toyframe")


@pytest.mark.parametrize("imported_first", [True, False])
def test_any_order_of_import_hooks_and_uninstalling_puts_everything_back(toyframe_path, imported_first) -> None:
    integration, spy = integrate(), Spy()
    if imported_first:
        found = dict(vars(import_toyframe()))
    integration.install(spy)
    toyframe = import_toyframe()

    assert toyframe.schedule(3) == [0, 2, 4]
    assert spy.take()[0]["words"] == ["F0", "F1", "F2"]

    integration.uninstall()
    if imported_first:
        assert vars(toyframe) == found
    assert toyframe.schedule(3) == [0, 2, 4]
    assert spy.take() == []


def test_installing_twice_is_installing_once_and_the_last_listener_counts(toyframe_path) -> None:
    integration, first, second = integrate(), Spy(), Spy()
    toyframe = import_toyframe()
    original = toyframe.step
    integration.install(first)
    hooked = toyframe.step
    integration.install(second)
    assert toyframe.step is hooked
    toyframe.schedule(1)
    assert (first.take(), [one["words"] for one in second.take()]) == ([], [["F0"]])
    integration.uninstall()
    assert toyframe.step is original


def test_installing_again_after_uninstalling_hooks_again(toyframe_path) -> None:
    integration, spy = integrate(), Spy()
    toyframe = import_toyframe()
    for _ in range(2):
        integration.install(spy)
        toyframe.schedule(1)
        assert [one["words"] for one in spy.take()] == [["F0"]]
        integration.uninstall()


def test_what_somebody_else_has_replaced_since_stays_theirs_and_our_part_in_it_is_quiet(toyframe_path) -> None:
    integration, spy = integrate(), Spy()
    toyframe = import_toyframe()
    integration.install(spy)
    ours = toyframe.step

    def theirs(number):
        return ours(number) + 1

    toyframe.step = theirs
    integration.uninstall()
    assert toyframe.step is theirs
    assert toyframe.schedule(2) == [1, 3]
    assert spy.take() == []


def test_everything_is_checked_before_anything_is_changed(toyframe_path) -> None:
    toyframe = import_toyframe()
    before = dict(vars(toyframe))
    integration = integrate(schedule=("microbatches",), step=("number", "chunk"))
    with pytest.raises(PerseusError, match=r"toyframe 1\.5\.2 .*toyframe\.step has no parameter 'chunk'"):
        integration.install(Spy())
    assert vars(toyframe) == before


def test_a_missing_target_is_named(toyframe_path) -> None:
    del import_toyframe().step
    with pytest.raises(PerseusError, match=r"toyframe\.step is missing"):
        integrate().install(Spy())


@pytest.mark.parametrize("tested", ["<1.5", ">=2"])
def test_a_version_that_no_test_has_seen_is_tried_after_one_warning(toyframe_path, log_lines, tested) -> None:
    spy = Spy()
    integrate(tested).install(spy)
    import_toyframe().schedule(1)
    assert [one["words"] for one in spy.take()] == [["F0"]]
    (warning,) = log_lines.messages
    assert warning.startswith(f"no test has seen toyframe 1.5.2, only {tested}: all that the hooks rely on is there")


def test_a_version_that_the_tests_have_seen_is_not_worth_a_word(toyframe_path, log_lines) -> None:
    integrate().install(Spy())
    import_toyframe()
    assert log_lines.messages == []


def test_a_function_that_binds_what_we_replace_is_found_out(toyframe_path) -> None:
    """``schedule`` as it is looks ``step`` up by name whenever it calls it; bound to a name of its own, it does not."""
    toyframe = toyframe_path / "toyframe.py"
    integrate(calls=("step",)).install(Spy())
    import_toyframe()
    del sys.modules["toyframe"]
    bound = (
        toyframe.read_text()
        .replace("[step(number) for", "[one(number) for")
        .replace("(microbatches)", "(microbatches, one=None)")
    )
    toyframe.write_text(bound)
    importlib.invalidate_caches()
    import_toyframe()
    with pytest.raises(PerseusError, match=r"toyframe\.schedule does not call 'step' by its name"):
        integrate(calls=("step",)).install(Spy())


def test_what_does_not_fit_trains_without_us_under_warn(toyframe_path, log_lines) -> None:
    spy = Spy()
    integrate(step=("number", "chunk")).install(spy, on_unsupported="warn")
    toyframe = import_toyframe()
    assert toyframe.schedule(2) == [0, 2]
    assert spy.take() == []
    (warning,) = log_lines.messages
    assert warning.startswith("training goes on without Perseus: toyframe 1.5.2 lacks what the hooks rely on")


def test_objects_that_are_not_as_they_were_are_one_line_and_no_crash(toyframe_path, log_lines) -> None:
    integration = integrate()
    integration.install(Spy())
    import_toyframe()
    assert integration.look(lambda: 7) == 7
    with pytest.raises(PerseusError, match=r"toyframe 1.5.2 lacks .*: AttributeError: 'tuple' object has no attribute"):
        integration.look(lambda: ().engine)
    integration.install(Spy(), "warn")
    assert integration.look(lambda: ().engine) is None
    assert integration.listener is None
    assert "training goes on without Perseus" in log_lines.messages[-1]


@pytest.mark.parametrize(
    ("package", "version", "import_line", "lacks"),
    [
        ("deepspeed", "0.14.5", "import deepspeed", "deepspeed.runtime.pipe.engine.PipelineEngine._INSTRUCTION_MAP"),
        (
            "megatron",
            "0.99.0",
            "from megatron import core",
            "megatron.core.pipeline_parallel.schedules.forward_backward_no_pipelining",
        ),
    ],
)
def test_real_frameworks_without_what_we_rely_on_are_refused_when_they_are_imported(
    tmp_path, package, version, import_line, lacks
) -> None:
    module = tmp_path / package / ("core" if package == "megatron" else "") / "__init__.py"
    module.parent.mkdir(parents=True)
    module.write_text(f"__version__ = '{version}'\n")
    code = f"from perseus_ds.patches import install_all; install_all(None.__class__); {import_line}"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"{version} lacks what the hooks rely on: {lacks}" in done.stderr.splitlines()[-1]
