"""Megatron-Core without a GPU: what it asks of ``torch.cuda`` is answered with the CPU.

Since 0.19 it imports Triton, whose kernels no test runs: where Triton is not installed, its names stand for nothing.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import torch

_zeros = torch.zeros


def _zeros_on_cpu(*args, **kwargs):
    if str(kwargs.get("device")).startswith("cuda"):
        kwargs["device"] = "cpu"
    return _zeros(*args, **kwargs)


torch.cuda.current_device = lambda: "cpu"
torch.cuda.synchronize = lambda *args, **kwargs: None
torch.cuda.is_current_stream_capturing = lambda: False
torch.Tensor.cuda = lambda self, *args, **kwargs: self
torch.zeros = _zeros_on_cpu


class _Nameless(ModuleType):
    """A module whose every name is such a module too; called, as a decorator is, it returns the function."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__, self.__path__, self.__version__ = ModuleSpec(name, None), [], "3.6.0"

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nameless(f"{self.__name__}.{name}")

    def __call__(self, *arguments, **_):
        return arguments[0] if arguments and callable(arguments[0]) else self


if importlib.util.find_spec("triton") is None:
    import torch._inductor.compile_fx  # which looks for Triton itself, and must not find this

    sys.modules |= {name: _Nameless(name) for name in ("triton", "triton.language")}
