"""A small GPT over characters, trained with Megatron-Core: pipeline, tensor and data parallelism.

It does not mention perseus_ds: the launch command adds it. Interleaving (``--chunks``) needs
megatron-core 0.13 or newer.
"""

import argparse
import gc
import json
import os
from pathlib import Path

import torch

if not torch.cuda.is_available():
    import cpu_shim  # noqa: F401
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig
from torch import Tensor

HERE = Path(__file__).parent


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, default=HERE / "sonnets.txt")
    parser.add_argument("--stages", type=int, default=None, help="pipeline stages; default: all ranks")
    parser.add_argument("--chunks", type=int, default=1, help="model chunks per stage: interleaved 1F1B if more than 1")
    parser.add_argument("--tensor", type=int, default=1, help="tensor-parallel ranks per stage")
    parser.add_argument("--overlap", action="store_true", help="overlap pipeline communication (with --chunks)")
    parser.add_argument("--steps", type=int, default=110)
    parser.add_argument("--eval-every", type=int, default=0)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--micro-batch-size", type=int, default=2)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--losses", type=Path, help="write the losses of all steps to this JSON file")
    return parser.parse_args()


def initialize(args: argparse.Namespace) -> None:
    """Start torch.distributed and cut the ranks into groups."""
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group("nccl")
    else:
        torch.set_num_threads(1)
        torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=args.tensor,
        pipeline_model_parallel_size=args.stages or torch.distributed.get_world_size() // args.tensor,
        virtual_pipeline_model_parallel_size=args.chunks if args.chunks > 1 else None,
    )
    torch.manual_seed(7)
    tensor_parallel.random.model_parallel_cuda_manual_seed(7)


def build(args: argparse.Namespace, vocabulary: int) -> list[DistributedDataParallel]:
    """Return this rank's model chunks, each wrapped for data parallelism."""
    config = TransformerConfig(
        num_layers=args.layers,
        hidden_size=args.hidden,
        num_attention_heads=args.heads,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cpu_initialization=not torch.cuda.is_available(),
        pipeline_dtype=torch.float32,
        tensor_model_parallel_size=args.tensor,
        pipeline_model_parallel_size=parallel_state.get_pipeline_model_parallel_world_size(),
        virtual_pipeline_model_parallel_size=args.chunks if args.chunks > 1 else None,
        overlap_p2p_comm=args.overlap,
        batch_p2p_comm=not args.overlap,
        gradient_accumulation_fusion=False,
    )
    chunks = []
    for chunk in range(args.chunks):
        virtual = {"ignore_virtual": False, "vp_stage": chunk} if args.chunks > 1 else {}
        model = GPTModel(
            config=config,
            transformer_layer_spec=get_gpt_layer_local_spec(),
            vocab_size=-(-vocabulary // args.tensor) * args.tensor,
            max_sequence_length=args.context,
            pre_process=parallel_state.is_pipeline_first_stage(**virtual),
            post_process=parallel_state.is_pipeline_last_stage(**virtual),
            **({"vp_stage": chunk} if args.chunks > 1 else {}),
        )
        model.cuda(torch.cuda.current_device())
        chunks.append(DistributedDataParallel(config, DistributedDataParallelConfig(), model))
    config.finalize_model_grads_func = finalize_model_grads
    no_sync = [chunk.no_sync for chunk in chunks]
    config.no_sync_func = no_sync if len(no_sync) > 1 else no_sync[0]
    return chunks


def micro_batches(codes: Tensor, size: int, context: int, seed: int):
    """Yield (tokens, next tokens) pairs for ever, the same ones on all ranks of a pipeline."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(codes) - context - 1, (size,), generator=generator).tolist()
        yield (
            torch.stack([codes[s : s + context] for s in starts]).cuda(),
            torch.stack([codes[s + 1 : s + 1 + context] for s in starts]).cuda(),
        )


def forward_step(data, model):
    """Run one micro-batch through a chunk; Megatron-Core calls it."""
    tokens, labels = next(data)
    context = tokens.shape[1]
    positions = torch.arange(context, device=tokens.device).expand_as(tokens)
    future = torch.ones(context, context, dtype=torch.bool, device=tokens.device).triu(1)[None, None]
    output = model(tokens, positions, future, labels=labels)

    def loss_func(losses: Tensor):
        loss = losses.float().mean()
        # A copy, because the schedule divides the loss by the number of micro-batches in place.
        return loss, {"loss": loss.detach().clone()}

    return output, loss_func


def main() -> None:
    args = parse_arguments()
    initialize(args)
    text = args.text.read_text(encoding="utf-8")
    alphabet = sorted(set(text))
    codes = torch.tensor([alphabet.index(character) for character in text])

    chunks = build(args, len(alphabet))
    # Megatron-Core clips gradients on GPUs only.
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-3, clip_grad=0.0), chunks)
    forward_backward = get_forward_backward_func()
    replica = parallel_state.get_data_parallel_rank()

    def data(seed: int) -> list:
        return [micro_batches(codes, args.micro_batch_size, args.context, seed + replica) for _ in chunks]

    def run(iterators: list, forward_only: bool) -> float:
        """Run one iteration and return its loss; only the last stage knows it."""
        results = forward_backward(
            forward_step_func=forward_step,
            data_iterator=iterators if len(chunks) > 1 else iterators[0],
            model=chunks,
            num_microbatches=args.microbatches,
            seq_length=args.context,
            micro_batch_size=args.micro_batch_size,
            forward_only=forward_only,
        )
        return float(sum(result["loss"] for result in results)) / args.microbatches if results else float("nan")

    training, evaluation = data(seed=0), data(seed=1000)
    last = torch.distributed.get_rank() == torch.distributed.get_world_size() - 1
    losses = []
    # A full collection amid an iteration would stall every rank; what was set up need not be looked at again.
    gc.collect()
    gc.freeze()
    for step in range(args.steps):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        losses.append(run(training, forward_only=False))
        optimizer.step()
        if last and (step + 1) % 10 == 0:
            print(f"step {step + 1}/{args.steps}: loss {losses[-1]:.4f}", flush=True)
        if args.eval_every and (step + 1) % args.eval_every == 0:
            losses.append(run(evaluation, forward_only=True))
            if last:
                print(f"step {step + 1}/{args.steps}: evaluation loss {losses[-1]:.4f}", flush=True)
    if args.losses and last:
        args.losses.write_text(json.dumps([loss.hex() for loss in losses]), encoding="utf-8")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
