"""Lets Megatron-Core run without a GPU: redirects its ``torch.cuda`` calls to the CPU.

Only for this example. The script imports it only without a GPU.
"""

import contextlib

import torch
from megatron.core.tensor_parallel import random


def _on_cpu(make):
    def make_on_cpu(*args, **kwargs):
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return make(*args, **kwargs)

    return make_on_cpu


torch.cuda.current_device = lambda: "cpu"
torch.cuda.synchronize = lambda *args, **kwargs: None
torch.Tensor.cuda = lambda self, *args, **kwargs: self
torch.zeros = _on_cpu(torch.zeros)
torch.tensor = _on_cpu(torch.tensor)
# Without a GPU there is no GPU random generator to switch to and back from.
random.CudaRNGStatesTracker.fork = lambda *args, **kwargs: contextlib.nullcontext()
random.model_parallel_cuda_manual_seed = lambda seed, **kwargs: None
