"""The kernels compile where NVRTC is, and are launched with what they take."""

import ctypes
import re
import types

import pytest

from perseus_ds.silicon import kernels
from perseus_ds.silicon.kernels import SOURCE, Kernel, compiled, rtc_library

SIGNATURES = dict(re.findall(r'extern "C" __global__ void (\w+)\(([^)]*)\)', SOURCE))


def test_every_argument_has_64_bits():
    assert set(SIGNATURES) == {"stamp", "spin", "shake", "clocked", "await_flag", "raise_flag"}
    for signature in SIGNATURES.values():
        assert all(re.fullmatch(r"(volatile )?u64 \*?\w+", one.strip()) for one in signature.split(","))


def test_every_loop_that_waits_ends_by_itself():
    waiting = re.findall(r"while \([^\n]*(?:!=|<) (?:number|1\.0)\)[^}]*", SOURCE)
    assert len(waiting) == 3
    assert all(re.search(r"> \d{10}ull\) (return|break)", loop) for loop in waiting)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_the_source_compiles(architecture):
    try:
        library = rtc_library()
    except OSError as error:
        pytest.skip(str(error))
    assert compiled(SOURCE, architecture, library).startswith(b"\x7fELF")
    with pytest.raises(RuntimeError, match="no storage class"):
        compiled("bad", architecture, library)


def test_arguments_reach_the_driver(monkeypatch):
    launched = []

    def launch(function, *rest):
        *grid, stream, pointers, extra = rest
        values = [ctypes.c_uint64.from_address(pointer).value for pointer in pointers]
        launched.append((function.value, grid, stream.value, values, extra))
        return 0

    def get(function, module, name):
        function._obj.value = 77
        return 0

    driver = types.SimpleNamespace(cuModuleGetFunction=get, cuLaunchKernel=launch)
    monkeypatch.setattr(kernels, "_driver", lambda: driver)
    monkeypatch.setattr(kernels, "_module", lambda architecture: ctypes.c_void_p(1))
    Kernel("spin", "sm_90")(5, 10**12, 2**63, blocks=4, threads=256)
    assert launched == [(77, [4, 1, 1, 256, 1, 1, 0], 5, [10**12, 2**63], None)]
    driver.cuLaunchKernel = lambda *rest: 700
    with pytest.raises(RuntimeError, match="launch: error 700"):
        Kernel("spin", "sm_90")(5, 1, 2)
