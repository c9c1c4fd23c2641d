"""Kernels with a clock of their own: without a GPU, what they are launched with, and what the keeper tells."""

import time
from types import SimpleNamespace

import pytest
import torch

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.silicon.clock_words import LATENCIES_S
from perseus_ds.silicon.cuda_clocked import CudaClocked


@pytest.fixture
def registered(monkeypatch):
    """CUDA's runtime notes which memory it is told of."""
    told = []
    runtime = SimpleNamespace(
        cudaHostRegister=lambda address, size, flags: told.append((address, size)) or 0,
        cudaHostUnregister=lambda address: told.append(address) or 0,
    )
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    return told


@pytest.mark.against_the_clock("a keeper that a busy host lets wait sets its clocks late")
def test_kernels_read_the_memory_that_the_keeper_writes(registered):
    launched = []
    clocked = CudaClocked(lambda *arguments: launched.append(arguments))
    for kind in (Kind.FORWARD, Kind.BACKWARD):
        clocked.run(kind)
    ((address, size),) = registered
    assert launched == [("clocked", address, address + 24, 1), ("clocked", address, address + 24, 2)]
    assert size == 32
    clocked.set_mhz(clocked.clocks_mhz[-1])
    time.sleep(0.5)
    (asked,) = clocked.close()
    assert asked.mhz == clocked.clocks_mhz[-1]
    assert clocked.latency_s(asked.mhz) == LATENCIES_S[asked.mhz]
    assert registered[-1] == address


def test_memory_that_cuda_refuses_is_an_error(registered, monkeypatch):
    monkeypatch.setattr(torch.cuda.cudart(), "cudaHostRegister", lambda *arguments: 1)
    with pytest.raises(RuntimeError, match="error 1"):
        CudaClocked(print)
