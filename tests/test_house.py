"""The house rules that a reader relies on: small files, small functions, one notion of kinds, a mirror test each."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "perseus_ds"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name not in ("__init__.py", "__main__.py"))
MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_ARGUMENTS = 300, 60, 8
COMPILED = ("njit", "jit")
MIRRORED = ("coordination", "device", "frontier", "pipeline", "profiling", "report", "runtime", "silicon")
# Modules without a test file of their own, and the one that tests them.
TESTED_ELSEWHERE = {
    "coordination/decision.py": "coordination/test_phase_controller.py",  # data: what the core takes and returns
    "coordination/events.py": "coordination/test_phase_controller.py",  # data
    "coordination/phases.py": "coordination/test_phase_controller.py",  # names
    "coordination/requests.py": "coordination/test_phase_controller.py",  # data
    "silicon/victim.py": "silicon/test_killed.py",  # the process that dies
}


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions of a module that Python runs itself."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = {ast.unparse(decorator).partition("(")[0].split(".")[-1] for decorator in node.decorator_list}
            if not decorators & set(COMPILED):
                yield node


def is_kernel(path: Path) -> bool:
    return any(f"@{name}" in path.read_text(encoding="utf-8") for name in COMPILED)


def argument_count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = function.args
    names = [one.arg for one in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]
    return len([name for name in names if name not in ("self", "cls")])


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_and_its_functions_fit_in_a_head(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= MAX_FILE_LINES or is_kernel(path), f"{lines} lines"
    for function in functions(path):
        length = (function.end_lineno or 0) - function.lineno + 1
        assert length <= MAX_FUNCTION_LINES, f"{function.name}: {length} lines"
        assert argument_count(function) <= MAX_ARGUMENTS, f"{function.name}: {argument_count(function)} arguments"


def test_every_module_has_its_test_file() -> None:
    modules = {path.relative_to(PACKAGE).as_posix() for path in MODULES if path.parent.name in MIRRORED}
    expected = {module: module.replace("/", "/test_") for module in modules} | TESTED_ELSEWHERE
    lacking = {module: test for module, test in expected.items() if not (ROOT / "tests" / test).exists()}
    assert lacking == {}
    # An entry for a module that is gone, or that has its own test file by now, is out of date.
    assert modules >= TESTED_ELSEWHERE.keys()
    assert [one for one in TESTED_ELSEWHERE if (ROOT / "tests" / one.replace("/", "/test_")).exists()] == []


def test_the_kinds_of_an_instruction_are_listed_once() -> None:
    """Nobody but ``pipeline/kinds.py`` lists kinds by name in a tuple, list or set of texts."""
    from perseus_ds.pipeline.kinds import Kind

    names = {kind.value for kind in Kind}
    lists = []
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Tuple | ast.List | ast.Set) and len(node.elts) > 1:
                texts = [element.value for element in node.elts if isinstance(element, ast.Constant)]
                if len(texts) == len(node.elts) and len(set(texts)) > 1 and names.issuperset(texts):
                    lists.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert lists == []


def test_what_test_files_share_has_one_name_each_and_is_found(pytestconfig: pytest.Config) -> None:
    shared = [path for path in (ROOT / "tests").glob("*/*.py") if not path.name.startswith(("test_", "conftest"))]
    names = [path.name for path in shared]
    assert sorted(names) == sorted(set(names))
    assert {path.parent for path in shared} <= set(pytestconfig.getini("pythonpath"))


def test_nothing_that_runs_what_it_reads_is_used_but_on_the_worker_s_own_pipe() -> None:
    """What crosses a trust boundary, a file, a checkpoint or a socket, is text and arrays (docs/security.md)."""
    running, found = {"pickle", "dill", "marshal", "shelve", "cloudpickle", "joblib"}, set()
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name.partition(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [(node.module or "").partition(".")[0]]
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            objects = called.endswith(("_object_list", "all_gather_object", "torch.load", "np.load", "yaml.load"))
            if running.intersection(names) or objects or called in ("eval", "exec"):
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == {"worker_process.py"}
