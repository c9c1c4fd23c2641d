"""Runs a Megatron script on a host that, now and then, has other work before a forward: ``busy_host.py SCRIPT ...``.

The baseline has that work, too. Its slack hides most of it, and a plan spends that slack.
"""

import itertools
import os
import random
import runpy
import sys
import time
from pathlib import Path

import torch

if not torch.cuda.is_available():
    sys.path.insert(0, str(Path(sys.argv[1]).parent))
    import cpu_shim  # noqa: F401
from megatron.core.pipeline_parallel import schedules

AWAITED, PATIENT_FOR = Path(os.environ["WAIT_FOR"]), 400  # calls: the plan may take long on a host this busy
SHARE, LASTS_S = (float(text) for text in os.environ["BUSY_HOST"].split())


def between_instructions(forward_step):
    chance, calls = random.Random(int(os.environ["RANK"])), itertools.count()

    def run(*args, **kwargs):
        if chance.random() < SHARE:
            time.sleep(LASTS_S)
        deadline_s = time.monotonic() + (1.0 if next(calls) >= PATIENT_FOR else 0.0)
        while not AWAITED.exists() and time.monotonic() < deadline_s:
            time.sleep(0.02)
        return forward_step(*args, **kwargs)

    return run


# Above the hooks' own wrapper, so it is no part of the instruction.
schedules.forward_step = between_instructions(schedules.forward_step)
del sys.argv[0]
sys.path[0] = str(Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
