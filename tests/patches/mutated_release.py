"""Hooks a changed copy of Megatron-Core on one rank, trains an iteration, and says in one line how that went."""

import os

import megatron_shim  # noqa: F401
import torch
from hook_spy import Spy, instructions

from perseus_ds.messages import PerseusError
from perseus_ds.patches import install_all

spy = Spy()
try:
    install_all(spy)
    from megatron.core import parallel_state
    from megatron.core.enums import ModelType
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.transformer import TransformerConfig

    class Chunk(torch.nn.Linear):
        """The least that a schedule wants of a model chunk."""

        config = TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=2)
        model_type, vp_stage = ModelType.encoder_or_decoder, None

        def set_input_tensor(self, tensor) -> None:
            pass

    torch.distributed.init_process_group("gloo", init_method=f"file://{os.environ['STORE']}", rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    chunk, data = Chunk(8, 8), iter(torch.ones(2, 4, 8))
    given = {"num_microbatches": 2, "seq_length": 4, "micro_batch_size": 2}
    given.pop(os.environ["OMITS"], None)
    get_forward_backward_func()(
        forward_step_func=lambda batches, model: (model(next(batches)), lambda output: (output.mean(), {})),
        data_iterator=data,
        model=chunk,
        **given,
    )
    print("served:", *instructions(spy.take()[0]["words"]))
except PerseusError as error:
    print("refused:", error)
