"""Processes that read beside others: real ones above the simulated driver."""

from perseus_ds.device.reading_only import READING_ONLY_VARIABLE
from perseus_ds.silicon.reader import beside
from perseus_ds.simulator.gpu import GpuSpec, VirtualGpu, create_gpu
from perseus_ds.simulator.state import state_path


def test_they_read_until_they_are_not_needed_and_set_nothing(tmp_path, monkeypatch):
    create_gpu(state_path(tmp_path, 0), GpuSpec((1400, 700)))
    gpu = VirtualGpu(state_path(tmp_path, 0))
    monkeypatch.setenv("PERSEUS_DS_SIMULATOR", str(tmp_path))
    monkeypatch.setenv(READING_ONLY_VARIABLE, "1")
    with beside("perseus_ds.silicon.reader", 0, count=1):
        seen_s = gpu.card.file.state.dynamic.time_s
        while gpu.card.file.state.dynamic.time_s == seen_s:  # nobody but the reader moves it on
            pass
    assert gpu.requests() == (0, 0)
