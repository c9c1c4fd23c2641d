"""Where metrics go: the monitors that the user has switched on in the framework, and none without."""

import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from perseus_ds.patches import monitors

WANDB = Path(__file__).parent / "megatron_lm" / "wandb.py"


class Engine:
    """What counts of DeepSpeed's: its rows' steps are samples, and go on from a checkpoint."""

    def __init__(self, rows, enabled=False):
        self.monitor = SimpleNamespace(enabled=enabled, write_events=rows.extend)
        self.global_samples = 480


@pytest.fixture(autouse=True)
def no_monitor(monkeypatch):
    monkeypatch.setattr(monitors, "_offered", [])
    monkeypatch.delitem(sys.modules, "megatron.training.global_vars", raising=False)


def test_without_any_monitor_there_is_none():
    assert monitors.framework_monitors(coordinates=True) == []


def test_deepspeed_s_monitor_counts_only_when_it_is_switched_on_and_on_the_first_rank():
    rows = []
    engine = Engine(rows)
    monitors.offer_monitor(engine)
    assert monitors.framework_monitors(coordinates=True) == []
    engine.monitor.enabled = True
    assert monitors.framework_monitors(coordinates=False) == []
    (write_events,) = monitors.framework_monitors(coordinates=True)
    write_events([("perseus_ds/switches", 3.0, 1)])
    engine.global_samples += 16
    write_events([("perseus_ds/switches", 4.0, 2)])
    assert rows == [("perseus_ds/switches", 3.0, 480), ("perseus_ds/switches", 4.0, 496)]


def test_an_engine_that_the_user_has_dropped_is_not_kept():
    rows = []
    engine = Engine(rows, enabled=True)
    monitors.offer_monitor(engine)
    (write_events,) = monitors.framework_monitors(coordinates=True)
    del engine
    write_events([("perseus_ds/switches", 3.0, 1)])
    assert rows == []
    assert monitors.framework_monitors(coordinates=True) == []


def test_megatron_s_writers_get_the_rows_on_the_rank_that_has_them(tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    wandb = SimpleNamespace(**runpy.run_path(str(WANDB)))
    monkeypatch.setenv("WANDB_ROWS", str(tmp_path / "rows.json"))
    writers = {"tensorboard": None, "wandb": None}
    variables = SimpleNamespace(
        get_args=lambda: SimpleNamespace(iteration=5000),  # goes on from a checkpoint
        get_tensorboard_writer=lambda: writers["tensorboard"],
        get_wandb_writer=lambda: writers["wandb"],
    )
    monkeypatch.setitem(sys.modules, "megatron.training.global_vars", variables)
    assert monitors.framework_monitors(coordinates=True) == []

    writers.update(tensorboard=SummaryWriter(tmp_path), wandb=wandb)
    found = monitors.framework_monitors(coordinates=False)
    wandb.log({"loss": 3.5}, 5009)
    for write_events in found:
        write_events([("perseus_ds/energy_joules", 2061.5, 7), ("perseus_ds/switches", 4.0, 7)])
    wandb.log({"loss": 3.4}, 5010)
    writers["tensorboard"].close()
    wandb.finish()

    events = EventAccumulator(str(tmp_path))
    events.Reload()
    (event,) = events.Scalars("perseus_ds/energy_joules")
    assert (event.step, event.value) == (5007, 2061.5)
    ours = {"perseus_ds/energy_joules": 2061.5, "perseus_ds/switches": 4.0, "perseus_ds/iteration": 5007}
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert rows == [{"_step": 5009, "loss": 3.5, **ours}, {"_step": 5010, "loss": 3.4}]
