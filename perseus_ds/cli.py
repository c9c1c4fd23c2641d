"""The command line. It imports only the module of the chosen command, so ``--help`` is quick."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

__all__ = ["main"]

_COMMANDS = {
    "run": "train a script under Perseus",
    "doctor": "check GPU, permissions, frameworks and network",
    "plan": "solve the frontier of a profile",
    "emulate": "estimate the saving of a large job",
    "set": "change the objective of a running job",
    "report": "write report.html of a run directory again",
    "status": "show the state of a running job",
    "reset-clocks": "reset clocks left locked by a crash",
    "clock-service": "reset clocks whose job was killed, once per node",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: Arguments; default: ``sys.argv[1:]``.

    Returns:
        Exit code: 0 success, 1 failure, 2 wrong input.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    # DeepSpeed's launcher puts --local_rank before the command; it belongs to the script.
    launcher_arguments = []
    while arguments and arguments[0].startswith("--local_rank"):
        launcher_arguments.append(arguments.pop(0))
    name = arguments[0] if arguments else ""
    parser = argparse.ArgumentParser(
        prog="perseus-ds", description="Less energy for pipeline-parallel training, at the same speed."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    if name not in _COMMANDS:
        for command, help_text in _COMMANDS.items():
            subparsers.add_parser(command, help=help_text, add_help=False)
        parser.parse_args(arguments or ["--help"])
        return 2
    module = importlib.import_module(f"perseus_ds.commands.{name.replace('-', '_')}")
    if name == "run":
        return module.run_script(arguments[1:], launcher_arguments)
    module.add_parser(subparsers)
    parsed = parser.parse_args(arguments)

    from perseus_ds.console import show_log
    from perseus_ds.messages import PerseusError

    show_log()
    try:
        code = module.run(parsed)
        sys.stdout.flush()
        return code
    except PerseusError as error:
        print(f"perseus-ds: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # a reader such as `head` has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _version() -> str:
    from perseus_ds import __version__

    return __version__
