"""What a clock request costs, from the times of instructions on a virtual GPU in virtual time."""

from dataclasses import replace

import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.request_cost import request_stall_s, toggling
from perseus_ds.profiling.spans import Span, changes
from perseus_ds.profiling.table import CurveKey, ProfilePoint
from perseus_ds.simulator.gpu import GpuSpec, VirtualGpu, create_gpu
from perseus_ds.simulator.launch import VirtualStream

FORWARD, BACKWARD = CurveKey(0, Kind.FORWARD), CurveKey(0, Kind.BACKWARD)
CURVES = {
    FORWARD: (ProfilePoint(1400, 0.0200, 6.0), ProfilePoint(1385, 0.0201, 5.9), ProfilePoint(700, 0.040, 4.0)),
    BACKWARD: (ProfilePoint(1400, 0.0400, 12.0), ProfilePoint(1385, 0.0402, 11.8), ProfilePoint(700, 0.080, 8.0)),
}
SPEC = GpuSpec((1400, 1385, 700), switch_latency_s=0.015, switch_latency_by_clock=0.5)


class Clock:
    now_s = 100.0


@pytest.fixture
def toggled(tmp_path, monkeypatch):
    """Runs instructions that each have a request at a share of their time, and returns spans and changes."""

    def run(stall_s: float, count: int = 24, share: float = 0.3, clocks: tuple[int, int] = (1400, 1385)):
        monkeypatch.setattr("perseus_ds.simulator.gpu.time.monotonic", lambda: Clock.now_s)
        path = tmp_path / f"{stall_s}-{count}-{share}-{clocks[1]}.state"
        assert create_gpu(path, replace(SPEC, request_stall_s=stall_s), 0)
        gpu = VirtualGpu(path, lambda: Clock.now_s)
        gpu.load_curves(CURVES)
        stream, spans, asked_s = VirtualStream(gpu, 1000), [], -1.0
        for index in range(count):
            key, begin_s = (FORWARD, BACKWARD)[index % 2], Clock.now_s
            stream.work(key)
            end = stream.mark()
            Clock.now_s = request_s = begin_s + share * CURVES[key][0].time_s
            gpu.lock_clock(clocks[(index + 1) % 2])
            while not stream.is_over(end):
                Clock.now_s += 1e-5
            spans.append(Span(begin_s, stream.ended_s(end), key, clocks[index % 2], asked_s if index else begin_s))
            asked_s = request_s
        return spans, changes(spans, 0.015)

    return run


@pytest.mark.parametrize("stall_s", [0.0, 0.0005, 0.002])
def test_the_stall_of_a_request_is_found_on_a_working_gpu(toggled, stall_s):
    assert request_stall_s(*toggled(stall_s), CURVES) == pytest.approx(stall_s, abs=1e-4)


@pytest.mark.parametrize(
    "told",
    [
        {"count": 5},  # too few
        {"clocks": (1400, 700)},  # the clock itself changes the time
        {"share": 0.9},  # the request may reach the GPU in the next instruction
    ],
)
def test_requests_that_cannot_tell_are_not_taken_for_free_ones(toggled, told):
    assert request_stall_s(*toggled(0.002, **told), CURVES) is None


def at(*clocks_mhz: int) -> list[Span]:
    return [Span(float(index), index + 0.9, FORWARD, mhz) for index, mhz in enumerate(clocks_mhz)]


@pytest.mark.parametrize(
    ("clocks_mhz", "found"),
    [
        ((1400,) * 4 + (1385, 1400) * 4 + (1385,) * 3, [(3.0, 12.9)]),
        ((1385, 1400) * 3, [(0.0, 5.9)]),
        ((1400,) * 4 + (1385,) * 3 + (1370,) * 5, []),
        ((1385, 1400) * 2, []),
        ((), []),
    ],
)
def test_times_of_toggling_are_told_from_the_rest_of_a_sweep(clocks_mhz, found):
    assert toggling(at(*clocks_mhz)) == found
