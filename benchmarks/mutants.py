"""Do the tests notice a broken package? Breaks it in small ways, one at a time, and runs its tests on each.

cosmic-ray makes the mutants; a sample of them is tried, in a copy of the tree, so that processes that tests start run
the mutant too. What the tests import is imported once, and each mutant has a fork of that process.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numba
import parso
import pytest
import yaml
from cosmic_ray.ast import Visitor
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
EQUIVALENT = Path(__file__).with_suffix(".yaml")
# Replacements that a slip of the pen could make; wilder ones (a shift of floats) every test notices.
_REPLACED = {
    "Binary": "Add_Sub Sub_Add Mul_Div Div_Mul FloorDiv_Mul Mod_Mul Pow_Mul BitOr_BitAnd BitAnd_BitOr",
    "Comparison": "Eq_NotEq NotEq_Eq Lt_LtE Lt_Gt LtE_Lt LtE_Gt Gt_GtE Gt_Lt GtE_Gt GtE_Lt Is_IsNot IsNot_Is",
    "Unary": "Delete_Not Delete_USub",
}
_OTHERS = (
    "AddNot NumberReplacer RemoveDecorator ReplaceTrueWithFalse ReplaceFalseWithTrue ReplaceAndWithOr "
    "ReplaceOrWithAnd ExceptionReplacer ReplaceBreakWithContinue ReplaceContinueWithBreak ZeroIterationForLoop"
)


class CallRemover(Operator):
    """Leaves out a call whose result nobody takes."""

    def mutation_positions(self, node):
        """Yield the place of a statement that is a mere call, and not one that logs."""
        call = node.children[0] if node.type == "simple_stmt" else node
        if call is not node and call.type == "atom_expr" and not call.get_code().strip().startswith("log."):
            yield call.start_pos, call.end_pos

    def mutate(self, node, index):
        """Put ``pass`` in its place."""
        node.children[0] = parso.python.tree.Keyword("pass", node.start_pos, node.get_first_leaf().prefix)
        return node

    @classmethod
    def examples(cls):
        """Return nothing: only cosmic-ray's own tests ask for it."""
        return ()


OPERATORS = [
    *(get_operator(f"core/Replace{of}Operator_{pair}")() for of, pairs in _REPLACED.items() for pair in pairs.split()),
    *(get_operator(f"core/{name}")() for name in _OTHERS.split()),
    CallRemover(),
]


@dataclass(frozen=True)
class Mutant:
    """A module with one thing changed: ``was`` and ``now`` are the lines that differ."""

    module: Path
    line: int
    was: str
    now: str
    source: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}\n  - {self.was}\n  + {self.now}"


class Sites(Visitor):
    """Where a module can be changed: begin and end of code, and the operators that apply with their occurrence."""

    def __init__(self, source: str) -> None:
        self._ignored = list(_ignored(ast.parse(source)))
        self._seen: Counter[int] = Counter()
        self.found: dict[tuple, list[tuple[Operator, int]]] = defaultdict(list)
        self.walk(parso.parse(source))

    def visit(self, node):
        """Note what can be done with ``node``."""
        for number, operator in enumerate(OPERATORS):
            for begin, end in operator.mutation_positions(node):
                if not any(first <= begin < last for first, last in self._ignored):
                    self.found[begin, end].append((operator, self._seen[number]))
                self._seen[number] += 1
        return node


def _ignored(tree: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield begin and end of what no test sees: annotations, decorators' arguments, a module's start as a program."""
    for node in ast.walk(tree):
        decorators = getattr(node, "decorator_list", [])
        parts = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        parts += [one for each in decorators if isinstance(each, ast.Call) for one in [*each.args, *each.keywords]]
        if isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: it guards against our own errors alone
            parts.append(node)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("__name__ == '__main__'", "TYPE_CHECKING"):
            parts.append(node)
        for each in decorators:
            if ast.unparse(each).startswith("njit"):
                yield (each.lineno, each.col_offset - 1), (each.end_lineno, each.end_col_offset)
        for part in filter(None, parts):
            yield (part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)


def mutants(package: str, at: str, seed: int) -> Iterator[Mutant]:
    """Yield one mutant for each place where the package can be changed, in random order."""
    rng = random.Random(seed)
    sources = {path: path.read_text() for path in sorted((ROOT / "perseus_ds" / package).glob("*.py"))}
    sites = [(path, *site) for path, source in sources.items() for site in Sites(source).found.items()]
    rng.shuffle(sites)
    for path, (begin, _), ways in sites:
        operator, occurrence = rng.choice(ways)
        if not re.search(at, f"{path.name}:{begin[0]}"):
            continue
        try:
            mutated = mutate_code(sources[path], operator, occurrence)
        except AttributeError:  # cosmic-ray cannot replace an exception whose name has dots
            continue
        lines = list(difflib.ndiff(sources[path].splitlines(), mutated.splitlines()))
        was, now = (" ".join(line[2:].strip() for line in lines if line.startswith(sign)) for sign in ("- ", "+ "))
        yield Mutant(path.relative_to(ROOT), begin[0], was, now, mutated)


def is_equivalent(mutant: Mutant, known: Sequence[dict[str, str]]) -> bool:
    """Whether the mutant is known to change nothing that a test should hold."""
    place = f"{mutant.module.parent.name}/{mutant.module.name}"
    return any((place, mutant.was, mutant.now) == (e["at"], e["was"], e.get("now", mutant.now)) for e in known)


def copy_tree(tree: Path) -> None:
    """Copy the checkout and go there; file times stay, so that compiled Python and numba's kernels are found again."""
    unwanted = shutil.ignore_patterns(".git", ".venv", "runs", "site", "dist", "build", "*.egg-info", ".*_cache")
    shutil.copytree(ROOT, tree, dirs_exist_ok=True, ignore=unwanted)
    os.chdir(tree)
    sys.path.insert(0, str(tree))
    os.environ["PYTHONPATH"] = str(tree)


def warm_up(package: str) -> None:
    """Import all that the package's tests import, and forget of it what is ours; have numba's compiler ready."""
    with open(os.devnull, "w") as null, redirect_stdout(null):
        pytest.main(["--collect-only", "-q", "-n", "0", f"tests/{package}"])
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(os.getcwd()):
            del sys.modules[name]
    numba.njit(lambda number: number)(1)


def tests_of(module: Path, interpreted: frozenset[str]) -> list[str]:
    """Return the test files of a module's package: the module's own, those that import it, the others.

    Interpreted kernels are slow: of these only the files that import one, or bear its name.
    """
    imported = ".".join(module.with_suffix("").parts)
    files = sorted(Path("tests", module.parent.name).glob("test_*.py"))
    if interpreted:
        files = [file for file in files if any(f"{one} import" in file.read_text() for one in interpreted)]
    return [
        str(f) for f in sorted(files, key=lambda f: (f.stem != f"test_{module.stem}", imported not in f.read_text()))
    ]


def kernels_with(module: Path) -> frozenset[str]:
    """Return the names of the modules whose kernels hold a module's: its own and those that import it; else none."""
    kernels = {path: path.read_text() for path in module.parent.glob("*.py") if "njit" in path.read_text()}
    found = {module} & kernels.keys()
    while more := {
        path
        for path, source in kernels.items()
        if path not in found and any(f"{one.parent.name}.{one.stem} import" in source for one in found)
    }:
        found |= more
    return frozenset(".".join(path.with_suffix("").parts) for path in found)


def interpret(modules: frozenset[str]) -> None:
    """Let Python run the kernels of some modules: compiling those of each mutant would take half a minute."""
    njit = numba.njit

    def choose(*kernel, **options):
        compiled = njit(*kernel, **options)
        return compiled if kernel else lambda own: own if own.__module__ in modules else compiled(own)

    numba.njit = choose


def run_tests(files: Sequence[str], interpreted: frozenset[str], limit_s: float) -> int | None:
    """Run tests in a forked process; return pytest's exit status, None when they ran out of time."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        output = os.open("mutants.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        interpret(interpreted)
        chosen = "not launch and not compiled" if interpreted else "not launch"
        for part in filter(None, (files[:1], files[1:])):  # most mutants need no more than their module's own tests
            status = int(pytest.main([*part, "-x", "-q", "-n", "0", "-m", chosen, "--force-reruns", "0"]))
            if status not in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
                os._exit(status)
        os._exit(0)
    deadline_s = time.monotonic() + limit_s
    ended = False
    while not ended and time.monotonic() < deadline_s:
        time.sleep(0.02)
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    os.killpg(pid, signal.SIGKILL)  # with all that the tests have started
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) if ended else None


def try_out(mutant: Mutant, limits_s: dict[frozenset[str], float]) -> str:
    """Run the tests of the mutant's package on it; return what became of it."""
    interpreted = kernels_with(mutant.module)
    files = tests_of(mutant.module, interpreted)
    if interpreted not in limits_s:
        begin_s = time.monotonic()
        if run_tests(files, interpreted, 900.0) != 0:
            sys.exit(f"the tests fail without any mutant:\n{Path('mutants.log').read_text()}")
        limits_s[interpreted] = 20.0 + 2 * (time.monotonic() - begin_s)
    whole = mutant.module.with_suffix(".whole")
    mutant.module.rename(whole)
    mutant.module.write_text(mutant.source)
    status = run_tests(files, interpreted, limits_s[interpreted])
    whole.rename(mutant.module)
    return {None: "timeout", 0: "survived"}.get(status, "killed")


def main() -> None:
    """Try a sample of a package's mutants; print those that no test noticed, and how many were noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package")
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at", default="", help="regular expression: only places whose FILE.py:LINE it finds")
    arguments = parser.parse_args()
    known = yaml.safe_load(EQUIVALENT.read_text())
    found = mutants(arguments.package, arguments.at, arguments.seed)
    chosen = list(islice((one for one in found if not is_equivalent(one, known)), arguments.sample))
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    limits_s: dict[frozenset[str], float] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as tree:
        copy_tree(Path(tree))
        warm_up(arguments.package)
        for number, mutant in enumerate(chosen, start=1):
            outcome = try_out(mutant, limits_s)
            outcomes[mutant.module.stem][outcome] += 1
            if outcome != "killed":
                print(f"[{number}/{len(chosen)}] {outcome} {mutant}", flush=True)
    table = Table("module", "killed", "timeout", "survived", "noticed")
    outcomes["all"] = sum(outcomes.values(), Counter())
    for module, counts in outcomes.items():
        shares = [str(counts[outcome]) for outcome in ("killed", "timeout", "survived")]
        table.add_row(module, *shares, f"{1 - counts['survived'] / counts.total():.0%}")
    Console().print(table)


if __name__ == "__main__":
    main()
