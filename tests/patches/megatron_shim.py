"""Megatron-Core without a GPU: what it asks of ``torch.cuda`` is answered with the CPU."""

import torch

_zeros = torch.zeros


def _zeros_on_cpu(*args, **kwargs):
    if str(kwargs.get("device")).startswith("cuda"):
        kwargs["device"] = "cpu"
    return _zeros(*args, **kwargs)


torch.cuda.current_device = lambda: "cpu"
torch.cuda.synchronize = lambda *args, **kwargs: None
torch.Tensor.cuda = lambda self, *args, **kwargs: self
torch.zeros = _zeros_on_cpu
