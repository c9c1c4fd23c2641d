"""The entry script: it hands what it provides to ``pretrain`` and knows nothing of perseus_ds."""

from functools import partial

import torch

if not torch.cuda.is_available():
    import cpu_shim  # noqa: F401
import train as example
from megatron.core.enums import ModelType
from megatron.training import get_args, inprocess_restart, pretrain


def model_provider(vocabulary):
    return example.build(get_args(), vocabulary)


def add_example_args(parser):
    group = parser.add_argument_group(title="example")
    group.add_argument("--text", type=str)
    group.add_argument("--losses", type=str)
    return parser


if __name__ == "__main__":
    pretrain, store = inprocess_restart.maybe_wrap_for_inprocess_restart(pretrain)
    pretrain(
        example.micro_batches,
        partial(model_provider),
        ModelType.encoder_or_decoder,
        example.forward_step,
        args_defaults={"tokenizer_type": "none"},
        extra_args_provider=add_example_args,
        store=store,
    )
