"""The version matrix: the hook tests on every supported framework version (``nox``, or ``make test-matrix``).

A session runs in the environment that nox itself is in; a framework version that is not installed there is
fetched by the tests, without its dependencies. The last session writes docs/framework-releases.md from what has run.
"""

import os
import sys
from pathlib import Path

import nox

TESTS = Path(__file__).parent / "tests" / "patches"
sys.path.insert(0, str(TESTS))
from framework_versions import DEEPSPEED, MEGATRON  # noqa: E402


@nox.session(venv_backend="none")
@nox.parametrize("version", DEEPSPEED)
def deepspeed(session: nox.Session, version: str) -> None:
    _test(session, "tests/patches/test_deepspeed_hooks.py", version)


@nox.session(venv_backend="none")
@nox.parametrize("version", MEGATRON)
def megatron(session: nox.Session, version: str) -> None:
    _test(session, "tests/patches/test_megatron_hooks.py", version)


@nox.session(venv_backend="none")
def table(session: nox.Session) -> None:
    session.run(sys.executable, str(TESTS / "release_table.py"))


def _test(session: nox.Session, test: str, version: str) -> None:
    keeping = ("-n0", "-p", "release_table", test)
    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    session.run(sys.executable, "-m", "pytest", *keeping, env={"PERSEUS_DS_MATRIX": version, "PYTHONPATH": path})
