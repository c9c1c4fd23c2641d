"""The version matrix: the hook tests on every supported framework version (``nox``, or ``make test-matrix``).

A session runs in the environment that nox itself is in; a framework version that is not installed there is
fetched by the tests, without its dependencies.
"""

import sys
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).parent / "tests" / "patches"))
from framework_versions import DEEPSPEED, MEGATRON


@nox.session(venv_backend="none")
@nox.parametrize("version", DEEPSPEED)
def deepspeed(session: nox.Session, version: str) -> None:
    _test(session, "tests/patches/test_deepspeed_hooks.py", version)


@nox.session(venv_backend="none")
@nox.parametrize("version", MEGATRON)
def megatron(session: nox.Session, version: str) -> None:
    _test(session, "tests/patches/test_megatron_hooks.py", version)


def _test(session: nox.Session, test: str, version: str) -> None:
    session.run(sys.executable, "-m", "pytest", test, env={"PERSEUS_DS_MATRIX": version})
