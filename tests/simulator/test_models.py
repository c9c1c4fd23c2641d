"""GPU models by name, and what a configuration changes of them."""

import pytest

from perseus_ds.config import SimulatorConfig
from perseus_ds.runtime.simulation import simulated_profile
from perseus_ds.simulator.models import MODELS, gpu_model
from perseus_ds.simulator.nature import GpuSpec


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_a_gpu(name):
    config = SimulatorConfig(gpu=name)
    profile = simulated_profile(config, stages=2)
    points = next(iter(profile.curves.values()))
    spec = GpuSpec([point.frequency_mhz for point in points], **gpu_model(config).physics)
    assert spec.waiting_power_w(len(points) - 1) > 0.0
    assert max(spec.clocks_mhz) == (MODELS[name].top_clock_mhz or 1410)
    # Which models cannot hold their highest clock: those that were seen not to.
    demand_w = max(point.energy_j / point.time_s for point in points)
    limited = spec.power_limit_window_s > 0 and demand_w > spec.power_limit_w
    assert limited == (name in ("h100", "h200", "b200", "gh200"))


def test_kind_is_an_ideal_gpu_with_a_little_noise():
    assert gpu_model(SimulatorConfig()).physics == {"noise": 0.01}


def test_what_is_configured_counts_more_than_the_model():
    config = SimulatorConfig(gpu="h200", switch_latency_s=0.5, power_scale=1.0)
    model = gpu_model(config)
    assert model.physics["switch_latency_s"] == 0.5
    assert model.physics["power_limit_w"] == MODELS["h200"].physics["power_limit_w"]
    assert (model.power_scale, model.top_clock_mhz) == (1.0, 1980)
