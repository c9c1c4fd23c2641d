"""The listener: what happens at the end of the process."""

import subprocess
import sys

# The rank registers what closes its clock keeper while it attaches.
SCRIPT = """
import atexit, sys
from pathlib import Path
from types import SimpleNamespace

def attach(config, topology, checkpoint):
    atexit.register(print, "keeper")
    return SimpleNamespace(iteration_begin=lambda *_: None, close=lambda: print("rank"))

sys.modules["perseus_ds.runtime.attach"] = SimpleNamespace(attach=attach)
from perseus_ds.config import Config
from perseus_ds.pipeline.events import Topology
from perseus_ds.runtime.listener import PerseusListener

runtime = PerseusListener()
runtime.config = Config(run_dir=Path("unused"))
runtime.iteration_begin(Topology(0, 1, 0, 1, 0, 1), 1, True)
"""


def test_at_exit_the_rank_closes_before_its_keeper_so_that_its_last_words_are_heard():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["rank", "keeper"], done.stderr
