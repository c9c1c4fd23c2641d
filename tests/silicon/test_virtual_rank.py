"""A rank's GPU and a network in virtual time."""

import pytest

from perseus_ds.silicon.virtual_rank import VirtualNetwork, VirtualRankGpu


def test_the_gpu_observes(make_lab):
    gpu = VirtualRankGpu(make_lab())
    assert not gpu.sets_clocks
    assert gpu.default_clocks.requested(0) == 0
    assert len(gpu.drain_samples()) == 1


def test_networks_are_alike_and_their_kernels_take_time(make_lab):
    lab = make_lab()
    one, other = VirtualNetwork(lab), VirtualNetwork(lab)
    begin_s = lab.now_s()
    one.run(50)
    lab.synchronize()
    assert lab.now_s() - begin_s == pytest.approx(0.005, abs=2e-4)
    assert one.loss() != other.loss()
    other.run(10)
    assert one.loss() == other.loss()
