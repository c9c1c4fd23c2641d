"""A small GPT over characters, trained with DeepSpeed's pipeline engine.

It does not mention perseus_ds: the launch command adds it.
"""

import argparse
import gc
import json
from pathlib import Path

import deepspeed
import torch
from deepspeed.pipe import LayerSpec, PipelineModule
from torch import Tensor, nn

HERE = Path(__file__).parent


class Embedding(nn.Module):
    """Token and position embedding."""

    def __init__(self, vocabulary: int, context: int, hidden: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, hidden)
        self.position = nn.Embedding(context, hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, pre-norm."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))

    def forward(self, x: Tensor) -> Tensor:
        batch, context, hidden = x.shape
        query, key, value = (
            part.view(batch, context, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm_1(x)).chunk(3, dim=-1)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, context, hidden))
        return x + self.mlp(self.norm_2(x))


class Head(nn.Module):
    """Final norm and projection onto the vocabulary."""

    def __init__(self, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.project = nn.Linear(hidden, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(self.norm(x))


def loss_fn(logits: Tensor, target: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def micro_batches(codes: Tensor, size: int, context: int, seed: int):
    """Yield (tokens, next tokens) pairs for ever."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(codes) - context - 1, (size,), generator=generator).tolist()
        yield (
            torch.stack([codes[s : s + context] for s in starts]),
            torch.stack([codes[s + 1 : s + 1 + context] for s in starts]),
        )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--text", type=Path, default=HERE / "sonnets.txt")
    parser.add_argument("--stages", type=int, default=None, help="pipeline stages; default: all ranks")
    parser.add_argument("--steps", type=int, default=110)
    parser.add_argument("--eval-every", type=int, default=0)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--losses", type=Path, help="write the losses of all steps to this JSON file")
    return deepspeed.add_config_arguments(parser).parse_args()


def main() -> None:
    args = parse_arguments()
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
        # Without a GPU, DeepSpeed would compile a shared-memory operator that gloo does not need.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed()
    torch.manual_seed(7)

    text = args.text.read_text(encoding="utf-8")
    alphabet = sorted(set(text))
    codes = torch.tensor([alphabet.index(character) for character in text])

    model = PipelineModule(
        layers=[
            LayerSpec(Embedding, len(alphabet), args.context, args.hidden),
            *(LayerSpec(Block, args.hidden, args.heads) for _ in range(args.layers)),
            LayerSpec(Head, args.hidden, len(alphabet)),
        ],
        num_stages=args.stages or torch.distributed.get_world_size(),
        loss_fn=loss_fn,
        partition_method="uniform",
    )
    engine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=list(model.parameters()))

    replica = engine.grid.get_data_parallel_rank()
    training = micro_batches(codes, engine.micro_batch_size, args.context, seed=replica)
    evaluation = micro_batches(codes, engine.micro_batch_size, args.context, seed=1000 + replica)

    losses = []
    # A full collection amid an iteration would stall every rank; what was set up need not be looked at again.
    gc.collect()
    gc.freeze()
    for step in range(args.steps):
        loss = float(engine.train_batch(data_iter=training))
        losses.append(loss)
        if engine.global_rank == 0 and (step + 1) % 10 == 0:
            print(f"step {step + 1}/{args.steps}: loss {loss:.4f}", flush=True)
        if args.eval_every and (step + 1) % args.eval_every == 0:
            loss = float(engine.eval_batch(data_iter=evaluation))
            losses.append(loss)
            if engine.global_rank == 0:
                print(f"step {step + 1}/{args.steps}: evaluation loss {loss:.4f}", flush=True)
    if args.losses and engine.global_rank == 0:
        args.losses.write_text(json.dumps([loss.hex() for loss in losses]), encoding="utf-8")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
