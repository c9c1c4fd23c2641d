"""CUDA kernels compiled on the spot by NVRTC, which torch brings, and launched through the driver.

Neither a compiler nor CUDA's headers are needed. All arguments are 64 bit: pointers and whole numbers.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["SOURCE", "Kernel", "compiled", "rtc_library"]

SOURCE = r"""
typedef unsigned long long u64;

__device__ __forceinline__ u64 now_ns() {
    u64 ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}

extern "C" __global__ void stamp(u64 *out) { *out = now_ns(); }

// All threads of a block compute until its first one has seen the time pass.
extern "C" __global__ void spin(u64 length_ns, u64 *sink) {
    u64 begin = now_ns();
    float value = threadIdx.x;
    while (now_ns() - begin < length_ns)
        for (int i = 0; i < 64; ++i) value = fmaf(value, 1.0001f, 0.5f);
    if (value == -1.0f) *sink = 1;
}

// The host writes a number; the device answers with it, and with the time between.
extern "C" __global__ void shake(volatile u64 *word, u64 times) {
    u64 begin = now_ns();
    for (u64 number = 1; number <= times; ++number) {
        while (word[0] != number)
            if (now_ns() - begin > 2000000000ull) return;
        word[1 + number] = now_ns();
        __threadfence_system();
        word[1] = number;
    }
}

// Work that is done at the speed of a clock that somebody else sets: the word holds nanoseconds per unit of work.
extern "C" __global__ void clocked(volatile u64 *ns_per_work, volatile u64 *running, u64 kind) {
    running[0] = kind;
    __threadfence_system();
    double done = 0.0;
    u64 before = now_ns(), begin = before;
    while (done < 1.0) {
        u64 now = now_ns();
        done += (double)(now - before) / (double)ns_per_work[kind];
        before = now;
        if (now - begin > 5000000000ull) break;
    }
    running[0] = 0;
    __threadfence_system();
}

// Waits for another stream.
extern "C" __global__ void await_flag(volatile u64 *flag, u64 number) {
    u64 begin = now_ns();
    while (*flag < number)
        if (now_ns() - begin > 5000000000ull) return;
}

extern "C" __global__ void raise_flag(volatile u64 *flag, u64 number) {
    *flag = number;
    __threadfence_system();
}
"""
"""All kernels. ``%globaltimer`` counts nanoseconds; each loop that waits ends by itself after seconds."""

_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


def _in_packages(pattern: str) -> Iterator[str]:
    """Yield the libraries that come as Python packages."""
    for folder in filter(None, sys.path):
        yield from map(str, sorted(Path(folder).glob(f"nvidia/*/lib/{pattern}")))


def rtc_library() -> ctypes.CDLL:
    """Load NVRTC.

    Raises:
        OSError: It is not there.
    """
    for builtins in _in_packages("libnvrtc-builtins.so.*"):
        ctypes.CDLL(builtins)  # NVRTC opens it by its name alone, on no path
    for name in (*_NAMES, *_in_packages("libnvrtc.so.*")):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError("libnvrtc is not there; torch with CUDA brings it")


def compiled(source: str, architecture: str, library: ctypes.CDLL | None = None) -> bytes:
    """Compile CUDA source to a binary.

    Args:
        source: The source.
        architecture: Such as ``"sm_90"``.
        library: NVRTC; default: found.

    Raises:
        RuntimeError: NVRTC refuses; with its log.
    """
    rtc = library or rtc_library()
    program = ctypes.c_void_p()
    _check(rtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"silicon.cu", 0, None, None), "create")
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    failed = rtc.nvrtcCompileProgram(program, 1, options)
    size = ctypes.c_size_t()
    if failed:
        rtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        rtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(f"NVRTC: {log.value.decode()}")
    _check(rtc.nvrtcGetCUBINSize(program, ctypes.byref(size)), "size")
    binary = ctypes.create_string_buffer(size.value)
    _check(rtc.nvrtcGetCUBIN(program, binary), "binary")
    rtc.nvrtcDestroyProgram(ctypes.byref(program))
    return binary.raw


def _check(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"CUDA, {what}: error {code}")


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


@functools.cache
def _module(architecture: str) -> ctypes.c_void_p:
    module = ctypes.c_void_p()
    _check(_driver().cuModuleLoadData(ctypes.byref(module), compiled(SOURCE, architecture)), "load")
    return module


class Kernel:
    """One kernel of ``SOURCE`` on the current device; torch has made its context.

    Args:
        name: Name of the kernel.
        architecture: Such as ``"sm_90"``.
    """

    def __init__(self, name: str, architecture: str) -> None:
        self._function = ctypes.c_void_p()
        module = _module(architecture)
        _check(_driver().cuModuleGetFunction(ctypes.byref(self._function), module, name.encode()), name)

    def __call__(self, stream: int, *arguments: int, blocks: int = 1, threads: int = 1) -> None:
        """Launch it.

        Args:
            stream: CUDA's handle of the stream.
            *arguments: Pointers and numbers, each of 64 bits.
            blocks: Thread blocks.
            threads: Threads of each.
        """
        values = [ctypes.c_uint64(value) for value in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        grid: tuple[Any, ...] = (blocks, 1, 1, threads, 1, 1, 0)
        launched = _driver().cuLaunchKernel(self._function, *grid, ctypes.c_void_p(stream), pointers, None)
        _check(launched, "launch")
