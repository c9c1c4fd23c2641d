"""Weights & Biases' rules of steps: values gather in a row until a later step, or ``commit``, ends it."""

import json
import os

_rows, _row, _step = [], {}, 0


def init(**settings):
    assert settings["project"]


def define_metric(name, step_metric=None):
    assert (name, step_metric) == ("perseus_ds/*", "perseus_ds/iteration")


def log(data, step=None, commit=None):
    global _step
    if step is not None and step < _step:
        raise AssertionError(f"step {step} is less than the current step {_step}: W&B would drop {data}")
    if step is not None and step > _step:
        _end_row()
        _step = step
    _row.update(data)
    if commit or (commit is None and step is None):
        _end_row()
        _step += 1


def finish():
    _end_row()
    with open(os.environ["WANDB_ROWS"], "w") as file:
        json.dump(_rows, file)


def _end_row():
    if _row:
        _rows.append({"_step": _step, **_row})
        _row.clear()
