"""What a profile of Megatron-Core depends on: every setting that changes an instruction's time."""

from dataclasses import replace

import pytest
import torch

transformer = pytest.importorskip("megatron.core.transformer")
from perseus_ds.patches.megatron_layout import _fingerprint  # noqa: E402

CONFIG = transformer.TransformerConfig(num_layers=2, hidden_size=8, num_attention_heads=2)


def fingerprint(config=CONFIG, width: int = 8, sequence: int = 4, batch: int = 2, reduction=None) -> str:
    chunk = torch.nn.Linear(width, width)
    if reduction is not None:
        chunk.ddp_config = reduction
    return _fingerprint([chunk], config, sequence, batch)


def test_it_is_the_same_wherever_it_is_taken() -> None:
    config = transformer.TransformerConfig(num_layers=2, hidden_size=8, num_attention_heads=2)
    assert fingerprint(config) == fingerprint()


@pytest.mark.parametrize(
    "setting",
    [
        {"fp8": "hybrid"},
        {"recompute_granularity": "selective"},
        {"moe_token_dispatcher_type": "alltoall"},
        {"attention_backend": "unfused"},
        {"tp_comm_overlap": True},
        {"cpu_offloading": True, "cpu_offloading_num_layers": 1},
        {"activation_func": torch.nn.functional.silu},
        {"params_dtype": torch.bfloat16},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_a_setting_that_changes_times_changes_it(setting) -> None:
    changed = replace(CONFIG)
    vars(changed).update(setting)
    assert fingerprint(changed) != fingerprint()


def test_a_setting_of_a_release_to_come_changes_it() -> None:
    changed = replace(CONFIG)
    changed.attention_of_the_future = "faster"
    assert fingerprint(changed) != fingerprint()


def test_settings_within_settings_change_it() -> None:
    found = {fingerprint()}
    for recipe in ({"linear": "fp8"}, {"linear": "fp4"}, replace(CONFIG, num_layers=4), replace(CONFIG, num_layers=6)):
        changed = replace(CONFIG)
        changed.quant_recipe = recipe
        found.add(fingerprint(changed))
    assert len(found) == 5


def test_shapes_and_the_reduction_s_settings_change_it() -> None:
    from megatron.core.distributed import DistributedDataParallelConfig

    different = [
        fingerprint(),
        fingerprint(width=16),
        fingerprint(sequence=8),
        fingerprint(batch=4),
        fingerprint(reduction=DistributedDataParallelConfig(overlap_grad_reduce=True)),
        fingerprint(reduction=DistributedDataParallelConfig(overlap_grad_reduce=False)),
    ]
    assert len(set(different)) == len(different)


def test_what_changes_no_time_does_not_change_it() -> None:
    changed = replace(CONFIG)
    changed.config_logger_dir, changed.timers = "elsewhere", object()
    assert fingerprint(changed) == fingerprint()
