"""A tiny pipeline of two stages that a real framework trains until it is told to stop: ``FRAMEWORK DIRECTORY``.

DIRECTORY/orders tells all ranks what to do before the next iteration: ``pause RANK SECONDS``, ``break RANK`` or
``stop``. Every rank writes its process and iteration to RANK.progress. Who knows the losses writes them to RANK.losses.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist

MICROBATCHES, STAGES, LAYERS, BATCH, WIDTH = 4, 2, 4, 2, 8
CHECKPOINT_S = 60.0
SAVING_VARIABLE = "SAVES_AT_SIGTERM"
"""Environment variable: set, the trainers handle SIGTERM and save a checkpoint, which takes them a while."""
NETWORK_VARIABLE = "TRAINING_NETWORK"
"""Environment variable: the interface of the training's own groups, which NCCL would find by itself."""


def batches(seed: int) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randn(BATCH, WIDTH, generator=generator)


def deepspeed_step() -> Callable[[], float | None]:
    """Return what trains one iteration with DeepSpeed's PipelineEngine, and returns its loss."""
    import deepspeed
    from deepspeed.pipe import LayerSpec, PipelineModule

    # Without a GPU, DeepSpeed would compile an operator that gloo does not need.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo")
    torch.manual_seed(1)
    module = PipelineModule(
        layers=[LayerSpec(torch.nn.Linear, WIDTH, WIDTH) for _ in range(LAYERS)],
        num_stages=STAGES,
        loss_fn=torch.nn.functional.mse_loss,
    )
    settings = {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_accumulation_steps": MICROBATCHES,
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
        "steps_per_print": 1_000_000,
    }
    engine = deepspeed.initialize(model=module, model_parameters=list(module.parameters()), config=settings)[0]
    inputs, targets = batches(2), batches(3)
    data = ((next(inputs), next(targets)) for _ in count())
    last = engine.is_last_stage()

    def step() -> float | None:
        loss = float(engine.train_batch(data))
        return loss if last else None

    return step


def megatron_step() -> Callable[[], float | None]:
    """Return what trains one iteration with Megatron-Core's schedule, and returns its loss on the last stage."""
    import megatron_shim  # noqa: F401
    from megatron.core import parallel_state
    from megatron.core.enums import ModelType
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.transformer import TransformerConfig

    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(pipeline_model_parallel_size=STAGES)
    config = TransformerConfig(
        num_layers=LAYERS,
        hidden_size=WIDTH,
        num_attention_heads=2,
        pipeline_model_parallel_size=STAGES,
        pipeline_dtype=torch.float32,
        batch_p2p_comm=False,
    )
    config.finalize_model_grads_func = lambda *_, **__: None

    class Chunk(torch.nn.Module):
        """The least that a schedule wants of a model chunk."""

        def __init__(self) -> None:
            super().__init__()
            self.config, self.vp_stage, self.model_type = config, None, ModelType.encoder_or_decoder
            self.layers = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS // STAGES)))
            self.received = None

        def set_input_tensor(self, tensor) -> None:
            self.received = tensor[0] if isinstance(tensor, list) else tensor

        def forward(self, data: torch.Tensor) -> torch.Tensor:
            return self.layers(data if self.received is None else self.received)

    def forward_step(iterator, chunk):
        def loss(output):
            mean = output.square().mean()
            return mean, {"loss": mean.detach().clone()}

        return chunk(next(iterator)), loss

    torch.manual_seed(1)
    model, data = Chunk(), (one[None] for one in batches(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    forward_backward = get_forward_backward_func()

    def step() -> float | None:
        optimizer.zero_grad()
        results = forward_backward(
            forward_step_func=forward_step,
            data_iterator=data,
            model=model,
            num_microbatches=MICROBATCHES,
            seq_length=1,
            micro_batch_size=BATCH,
            forward_only=False,
        )
        optimizer.step()
        return float(sum(result["loss"] for result in results)) if results else None

    return step


STEPS = {"deepspeed": deepspeed_step, "megatron": megatron_step}


def agreed(order: str, signals: list[int]) -> tuple[str, bool]:
    """Return the order that rank 0 has read, and whether any rank has had a signal: all act at the same iteration."""
    told: list[tuple[str, bool]] = [("", False)] * dist.get_world_size()
    dist.all_gather_object(told, (order, bool(signals)))
    return told[0][0], any(signalled for _, signalled in told)


def break_perseus() -> None:
    """Plant an error of ours in this rank."""
    from perseus_ds.runtime import listener

    if (ours := listener._listener) is not None and ours.session is not None:
        ours.session._meter._recorder.operation_begin = None


def train(framework: str, directory: Path) -> None:
    """Train as the rank that the environment says, until told to stop."""
    torch.set_num_threads(1)
    if network := os.environ.get(NETWORK_VARIABLE):
        os.environ["GLOO_SOCKET_IFNAME"] = network
    step = STEPS[framework]()
    os.environ.pop("GLOO_SOCKET_IFNAME", None)
    rank, order = str(dist.get_rank()), ""
    signals: list[int] = []
    if os.environ.get(SAVING_VARIABLE):
        signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    losses = (directory / f"{rank}.losses").open("w")
    for iteration in count():
        before = order
        order, ends = agreed((directory / "orders").read_text(), signals)
        if order == "stop":
            break
        if order != before:
            what, who, *rest = [*order.split(), "", ""]
            if who == rank and what == "pause":
                time.sleep(float(rest[0]))
                (directory / "paused").write_text(f"{iteration} {time.time()}")
            if who == rank and what == "break":
                break_perseus()
        if ends:
            time.sleep(CHECKPOINT_S)
        (directory / f"{rank}.progress").write_text(f"{os.getpid()} {iteration}")
        if (loss := step()) is not None:
            losses.write(f"{loss.hex()}\n")
            losses.flush()
    losses.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    train(next(one for one in sys.argv if one in STEPS), Path(sys.argv[-1]))
