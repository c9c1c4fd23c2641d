"""Runs a module of this package in a process of its own.

``python -m`` puts a directory before the standard library. If it is the user's, files there could shadow this package.
If it is this package's, its neighbours could shadow the standard library: old backports such as ``pathlib``.
"""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["command"]

_ROOT = Path(__file__).absolute().parents[1]
# The package is looked for in its own directory alone; what else lies there is found last.
_START = """
import sys
root, module = sys.argv[1:3]
del sys.argv[1:3]
sys.path[:] = [*filter(None, sys.path), root]
import importlib.machinery, importlib.util, runpy
spec = importlib.machinery.PathFinder.find_spec("perseus_ds", [root])
package = sys.modules["perseus_ds"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def command(module: str) -> list[str]:
    """Return the equivalent of ``python -m MODULE``, with this very package and the standard library first.

    Args:
        module: Such as ``"perseus_ds.device.keeper"``.
    """
    return [sys.executable, "-c", _START, str(_ROOT), module]
