"""Runs a script of Megatron-LM without a GPU: ``megatron_lm_on_cpu.py SCRIPT ...`` or ``... -m MODULE ...``.

What Megatron-LM asks of ``torch.cuda`` is answered with the CPU; streams and random states of a GPU stand for
nothing. The script itself is untouched.
"""

import collections
import contextlib
import functools
import importlib.metadata
import importlib.util
import itertools
import os
import runpy
import sys
import time
import typing
from multiprocessing import spawn
from pathlib import Path
from types import SimpleNamespace

import megatron_shim
import torch
import typing_extensions
import wrapt
from torch.distributed import distributed_c10d


class NoStream(contextlib.nullcontext):
    """A stream or an event of a device that is none: everything is done when it is asked for."""

    def __init__(self, *_, **__) -> None:
        super().__init__()

    def at_once(self, *_):
        return self

    record = wait = synchronize = wait_event = wait_stream = record_event = at_once

    def query(self) -> bool:
        return True


def on_cpu(value):
    """Return the CPU for a CUDA device, and anything else as it is."""
    return "cpu" if isinstance(value, str | torch.device) and str(value).startswith("cuda") else value


def redirected(function):
    def run(*args, **kwargs):
        return function(*map(on_cpu, args), **{name: on_cpu(value) for name, value in kwargs.items()})

    return run


def is_asked_by_initialize() -> bool:
    # Only there a missing GPU ends the program; elsewhere, as in Perseus, what is true is needed.
    return sys._getframe(1).f_globals.get("__name__") == "megatron.training.initialize"


def type_name(tensor, *args, **kwargs):
    found = plain_type(tensor, *args, **kwargs)
    return found.replace("torch.", "torch.cuda.") if isinstance(found, str) else found


def send_copy(tensor, *args, **kwargs):
    """Megatron-Core frees what it sends; a GPU's stream still has it, gloo would send what comes after."""
    return plain_isend(tensor.clone(), *args, **kwargs)


def load_dataset_helpers() -> None:
    """Take the compiled helpers of the installed wheel: their source is the same in all releases tested here."""
    files = importlib.metadata.files("megatron-core") or ()
    file = next(file for file in files if file.name.startswith("helpers_cpp"))
    name = "megatron.core.datasets.helpers_cpp"
    spec = importlib.util.spec_from_file_location(name, file.locate())
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


def without_main(*args, **kwargs):
    """A process that a checkpoint's writer spawns would run the script again, where nothing of this holds."""
    return {name: value for name, value in preparation(*args, **kwargs).items() if not name.startswith("init_main")}


FACTORIES = (
    "arange", "empty", "empty_like", "full", "linspace", "ones", "ones_like", "rand", "randint", "randn", "tensor",
    "zeros", "zeros_like",
)  # fmt: skip
for name in FACTORIES:
    setattr(torch, name, redirected(getattr(torch, name)))
plain_type, torch.Tensor.type = torch.Tensor.type, type_name
torch.Tensor.to = redirected(torch.Tensor.to)
torch.Tensor.record_stream = lambda *_: None
torch.nn.Module.cuda = lambda self, *_: self

cuda = torch.cuda
cuda.Stream = cuda.Event = cuda.stream = cuda.current_stream = cuda.default_stream = NoStream
cuda.is_available = is_asked_by_initialize
cuda.device_count = lambda: 8
cuda.set_device = cuda.empty_cache = cuda.manual_seed = cuda.set_rng_state = lambda *_: None
cuda.get_rng_state = lambda *_: torch.get_rng_state()
cuda.get_device_capability = lambda *_: (8, 0)
cuda.get_device_properties = lambda *_: SimpleNamespace(major=8, minor=0, total_memory=2**34)
cuda.memory_allocated = cuda.max_memory_allocated = cuda.memory_reserved = cuda.max_memory_reserved = lambda *_: 0
cuda.memory_stats = lambda *_: collections.defaultdict(int)
cuda.nvtx = SimpleNamespace(
    range_push=lambda *_: None, range_pop=lambda *_: None, range=lambda *_: contextlib.nullcontext()
)

plain_isend = distributed_c10d.isend
torch.distributed.isend = distributed_c10d.isend = send_copy
preparation, spawn.get_preparation_data = spawn.get_preparation_data, without_main
# Python 3.12 has it; imported last, as torch looks for others of that release.
typing.override = typing_extensions.override
for name in ("six", "regex", "megatron.legacy.fused_kernels"):
    sys.modules.setdefault(name, megatron_shim._Nameless(name))
load_dataset_helpers()


@wrapt.when_imported("megatron.core.datasets.utils")
def helpers_are_compiled(module) -> None:
    module.compile_helpers = lambda: None


@wrapt.when_imported("megatron.core.tensor_parallel.random")
def one_random_state(module) -> None:
    module.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
    module.model_parallel_cuda_manual_seed = lambda *_, **__: None


@wrapt.when_imported("megatron.training.training")
def training_waits_for_file(module) -> None:
    """From the 20th step on each waits a while for ``WAIT_FOR``: on a busy host a plan may take longer than all."""
    train_step, steps, awaited = module.train_step, itertools.count(), Path(os.environ.get("WAIT_FOR", "/"))

    @functools.wraps(train_step)
    def run(*args, **kwargs):
        deadline_s = time.monotonic() + (10.0 if next(steps) >= 20 else 0.0)
        while not awaited.exists() and time.monotonic() < deadline_s:
            time.sleep(0.1)
        return train_step(*args, **kwargs)

    module.train_step = run


if __name__ == "__main__":
    torch.set_num_threads(1)  # as launchers ask for: threads that spin for work would take the other ranks' cores
    del sys.argv[0]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")
