"""Makes virtual GPUs in virtual time."""

import itertools

import pytest
from virtual_time import CURVE, SPEC, VirtualTime

from perseus_ds.simulator.gpu import VirtualGpu, create_gpu

_numbers = itertools.count()


@pytest.fixture(scope="module")
def make_gpu(tmp_path_factory):
    directory = tmp_path_factory.mktemp("gpus")

    def make(spec=SPEC, curves=CURVE):
        path = directory / f"{next(_numbers)}.state"
        assert create_gpu(path, spec)
        clock = VirtualTime()
        gpu = VirtualGpu(path, clock)
        gpu.load_curves(curves)
        return gpu, clock

    return make
