"""``perseus_ds run [--dry-run] SCRIPT [--perseus FILE] ...``: the one changed word in the launch command."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from perseus_ds.messages import PerseusError

__all__ = ["run_script"]

_USAGE = """usage: perseus-ds run [--dry-run] SCRIPT [--perseus FILE] [SCRIPT'S OWN ARGUMENTS]

Runs a training script under Perseus, as every rank of a launcher does:

  deepspeed --num_gpus 8 --module perseus_ds run train.py --perseus perseus.yaml --deepspeed_config ds.json
  torchrun --nproc-per-node 8 -m perseus_ds run train.py --perseus perseus.yaml

--perseus FILE  configuration; default: the "perseus" section of the DeepSpeed JSON
--dry-run       set no clock; plan from a given or cached profile
"""


def run_script(arguments: Sequence[str], launcher_arguments: Sequence[str] = ()) -> int:
    """Install Perseus and run a script as ``__main__``.

    Args:
        arguments: Arguments after ``run``.
        launcher_arguments: The launcher's arguments before ``run`` (``--local_rank``); passed on to the script.

    Returns:
        Exit code; 2 if configuration, script path or framework version is wrong, before the training starts.
    """
    import perseus_ds
    from perseus_ds.config import load_config
    from perseus_ds.console import say_why_it_ends, show_log
    from perseus_ds.runtime import script_ended

    dry_run = list(arguments[:1]) == ["--dry-run"]
    arguments = arguments[1:] if dry_run else arguments
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE)
        return 0 if arguments else 2
    script, *rest = arguments
    show_log()
    try:
        config_file, rest = _take_option("--perseus", rest)
        if not Path(script).is_file():
            raise PerseusError("script-missing", path=script)
        config = load_config(config_file) if config_file else None
        if config and dry_run:
            config = config.model_copy(update={"mode": "observe"})
        perseus_ds.install(config)
        sys.argv = [script, *launcher_arguments, *rest]
        sys.path[0] = str(Path(script).resolve().parent)
        # A framework that is not supported says so when the script imports it.
        runpy.run_path(script, run_name="__main__")
        script_ended()
    except PerseusError as error:
        say_why_it_ends(error)
        return 2
    return 0


def _take_option(option: str, arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Remove ``option VALUE`` or ``option=VALUE`` from the arguments."""
    rest, value = [], None
    remaining = iter(arguments)
    for argument in remaining:
        if argument == option:
            value = next(remaining, None)
            if value is None:
                raise PerseusError("option-without-value", option=option)
        elif argument.startswith(f"{option}="):
            value = argument.partition("=")[2]
        else:
            rest.append(argument)
    return value, rest
