"""Trains a small mixture-of-experts GPT on CPU: two stages of two chunks, two expert-parallel ranks each.

Real megatron-core: GPTModel in its local implementation, alltoall dispatcher, DDP, bfloat16. With ``--overlap`` the
forwards and backwards run as joint passes, on streams that are none.
"""

import argparse
import contextlib
import json
import time
from pathlib import Path
from types import SimpleNamespace

import megatron_shim  # noqa: F401
import torch


class NoStream(contextlib.nullcontext):
    """A stream or an event of a device that is none: everything is done when it is asked for."""

    def __init__(self, *_, **__) -> None:
        super().__init__()

    def at_once(self, *_):
        return self

    record = wait = synchronize = wait_event = wait_stream = record_event = at_once


torch.cuda.Stream = torch.cuda.Event = torch.cuda.stream = NoStream
torch.cuda.current_stream = NoStream
torch.cuda.nvtx = SimpleNamespace(
    range_push=lambda *_: None, range_pop=lambda *_: None, range=lambda *_: contextlib.nullcontext()
)
torch.Tensor.record_stream = lambda *_: None
_all_to_all = torch.distributed.all_to_all_single


def _all_to_all_of_lists(*tensors, output_split_sizes=None, input_split_sizes=None, **kwargs):
    """What comes from a GPU arrives as numbers; on CPU it still is a tensor."""
    sizes = {"output_split_sizes": output_split_sizes, "input_split_sizes": input_split_sizes}
    lists = {name: one.tolist() if hasattr(one, "tolist") else one for name, one in sizes.items()}
    return _all_to_all(*tensors, **lists, **kwargs)


torch.distributed.all_to_all_single = _all_to_all_of_lists

from megatron.core import parallel_state, tensor_parallel  # noqa: E402
from megatron.core.distributed import (  # noqa: E402
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.tensor_parallel import random  # noqa: E402
from megatron.core.transformer import TransformerConfig  # noqa: E402
from megatron.core.transformer.moe import moe_utils  # noqa: E402

moe_utils.te_general_gemm = None  # what it is without Transformer Engine is left out there
random.CudaRNGStatesTracker.fork = lambda *args, **kwargs: contextlib.nullcontext()
random.model_parallel_cuda_manual_seed = lambda seed, **kwargs: None
STAGES, CHUNKS, EXPERT_RANKS, MICROBATCHES, SEQUENCE, VOCABULARY = 2, 2, 2, 4, 8, 32


def build(overlap: bool, p2p_overlap: bool) -> list:
    config = TransformerConfig(
        num_layers=4,
        hidden_size=16,
        num_attention_heads=2,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        add_bias_linear=False,
        use_cpu_initialization=True,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        bf16=True,
        num_moe_experts=4,
        moe_router_topk=2,
        moe_token_dispatcher_type="alltoall",
        overlap_moe_expert_parallel_comm=overlap,
        expert_model_parallel_size=EXPERT_RANKS,
        pipeline_model_parallel_size=STAGES,
        virtual_pipeline_model_parallel_size=CHUNKS,
        overlap_p2p_comm=p2p_overlap,
        batch_p2p_comm=not p2p_overlap,
        gradient_accumulation_fusion=False,
        bias_dropout_fusion=False,
    )
    chunks = []
    for chunk in range(CHUNKS):
        virtual = {"ignore_virtual": False, "vp_stage": chunk}
        model = GPTModel(
            config=config,
            transformer_layer_spec=get_gpt_layer_local_spec(num_experts=4, moe_grouped_gemm=False),
            vocab_size=VOCABULARY,
            max_sequence_length=SEQUENCE,
            pre_process=parallel_state.is_pipeline_first_stage(**virtual),
            post_process=parallel_state.is_pipeline_last_stage(**virtual),
            vp_stage=chunk,
        ).bfloat16()
        chunks.append(DistributedDataParallel(config, DistributedDataParallelConfig(), model))
    config.finalize_model_grads_func = finalize_model_grads
    config.no_sync_func = [chunk.no_sync for chunk in chunks]
    return chunks


def micro_batches(replica: int):
    generator = torch.Generator().manual_seed(replica)
    while True:
        yield torch.randint(VOCABULARY, (2, SEQUENCE + 1), generator=generator)


def forward_step(data, model, return_schedule_plan: bool = False):
    tokens = next(data)
    positions = torch.arange(SEQUENCE).expand(2, SEQUENCE)
    future = torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool).triu(1)[None, None]
    run = model.build_schedule_plan if return_schedule_plan else model
    output = run(tokens[:, :-1], positions, future, labels=tokens[:, 1:].contiguous())

    def loss_func(losses: torch.Tensor):
        loss = losses.float().mean()
        return loss, {"loss": loss.detach().clone()}

    return output, loss_func


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--overlap", action="store_true")
    parser.add_argument("--p2p-overlap", action="store_true")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--losses", type=Path)
    parser.add_argument("--await", dest="awaited", type=Path, help="from the 20th step on, wait a while for this file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel(
        pipeline_model_parallel_size=STAGES,
        virtual_pipeline_model_parallel_size=CHUNKS,
        expert_model_parallel_size=EXPERT_RANKS,
    )
    torch.manual_seed(7)
    tensor_parallel.random.model_parallel_cuda_manual_seed(7)
    chunks = build(args.overlap, args.p2p_overlap)
    optimizer = torch.optim.SGD([weight for chunk in chunks for weight in chunk.parameters()], lr=1e-2)
    replica = parallel_state.get_data_parallel_rank()
    data = [micro_batches(replica) for _ in chunks]
    losses = []
    for step in range(args.steps):
        deadline_s = time.monotonic() + 9.0
        while args.awaited and step >= 20 and not args.awaited.exists() and time.monotonic() < deadline_s:
            time.sleep(0.1)
        for chunk in chunks:
            chunk.zero_grad_buffer()
        results = get_forward_backward_func()(
            forward_step_func=forward_step,
            data_iterator=data,
            model=chunks,
            num_microbatches=MICROBATCHES,
            seq_length=SEQUENCE,
            micro_batch_size=2,
            forward_only=False,
        )
        for chunk in chunks:
            for weight in chunk.parameters():
                weight.grad = weight.main_grad.to(weight.dtype)
        optimizer.step()
        losses += [float(result["loss"]).hex() for result in results]
    if args.losses and losses:
        args.losses.with_suffix(f".{replica}.json").write_text(json.dumps(losses))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
