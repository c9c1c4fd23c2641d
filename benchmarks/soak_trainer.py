"""One rank of a soaked job: an ordinary training loop, disturbed as ``plan.json`` says. ``soak.py`` starts it."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol

import torch
import torch.distributed as dist
from soak_plan import SETTLED, Disturbance, read_plan

import perseus_ds

EXAMPLES = Path(__file__).parents[1] / "examples"
MICROBATCHES, LAYERS, HIDDEN, CONTEXT = 4, 2, 16, 8
STOP_EVERY = 20
SETTLING = range(50, SETTLED)  # iterations that a starved host's solve is waited for
_REST_S = 1.0  # well below BUS_TIMEOUT_S


class Job(Protocol):
    """A training.

    Attributes:
        reports: The rank that knows the loss.
    """

    reports: int

    def step(self) -> float:
        """Train for an iteration and return its loss."""
        ...

    def evaluate(self) -> float:
        """Evaluate on one batch and return its loss."""
        ...

    def save(self) -> None:
        """Write a checkpoint."""
        ...


class DeepSpeedJob(Job):
    """A tiny GPT on DeepSpeed's pipeline engine."""

    reports = 0

    def __init__(self, directory: Path) -> None:
        sys.path.insert(0, str(EXAMPLES / "deepspeed_gpt"))
        import deepspeed
        import train
        from deepspeed.pipe import LayerSpec, PipelineModule

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        deepspeed.init_distributed()
        torch.manual_seed(7)
        codes, vocabulary = _codes(EXAMPLES / "deepspeed_gpt")
        blocks = [LayerSpec(train.Block, HIDDEN, 2) for _ in range(LAYERS)]
        model = PipelineModule(
            [
                LayerSpec(train.Embedding, vocabulary, CONTEXT, HIDDEN),
                *blocks,
                LayerSpec(train.Head, HIDDEN, vocabulary),
            ],
            num_stages=dist.get_world_size(),
            loss_fn=train.loss_fn,
            partition_method="uniform",
        )
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": MICROBATCHES,
            "steps_per_print": 1_000_000,
            "optimizer": {"type": "Adam", "params": {"lr": 0.001, "torch_adam": True}},
        }
        self._engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config)
        self._directory = directory
        self._training = train.micro_batches(codes, 1, CONTEXT, seed=0)
        self._evaluation = train.micro_batches(codes, 1, CONTEXT, seed=1000)

    def step(self) -> float:
        return float(self._engine.train_batch(data_iter=self._training))

    def evaluate(self) -> float:
        return float(self._engine.eval_batch(data_iter=self._evaluation))

    def save(self) -> None:
        self._engine.save_checkpoint(str(self._directory / "checkpoint"), tag="soak")


class MegatronJob(Job):
    """A tiny GPT on Megatron-Core's 1F1B."""

    def __init__(self, directory: Path) -> None:
        sys.path.insert(0, str(EXAMPLES / "megatron_gpt"))
        import train
        from megatron.core import dist_checkpointing
        from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
        from megatron.core.pipeline_parallel import get_forward_backward_func

        codes, vocabulary = _codes(EXAMPLES / "megatron_gpt")
        shape = SimpleNamespace(layers=LAYERS, hidden=HIDDEN, heads=2, context=CONTEXT)
        arguments = SimpleNamespace(tensor=1, stages=None, chunks=1, overlap=False, **vars(shape))
        train.initialize(arguments)
        self.reports = dist.get_world_size() - 1
        self._chunks = train.build(arguments, vocabulary)
        config = OptimizerConfig(optimizer="adam", lr=1e-3, clip_grad=0.0)
        self._optimizer = get_megatron_optimizer(config, self._chunks)
        self._forward_backward, self._forward_step = get_forward_backward_func(), train.forward_step
        self._directory, self._save = directory, dist_checkpointing.save
        self._training = train.micro_batches(codes, 1, CONTEXT, seed=0)
        self._evaluation = train.micro_batches(codes, 1, CONTEXT, seed=1000)

    def step(self) -> float:
        for chunk in self._chunks:
            chunk.zero_grad_buffer()
        self._optimizer.zero_grad()
        loss = self._run(self._training, forward_only=False)
        self._optimizer.step()
        return loss

    def evaluate(self) -> float:
        return self._run(self._evaluation, forward_only=True)

    def save(self) -> None:
        folder = self._directory / "checkpoint" / str(time.monotonic_ns() if dist.get_rank() == 0 else "")
        told = [str(folder)]
        dist.broadcast_object_list(told)
        Path(told[0]).mkdir(parents=True, exist_ok=True)
        self._save({"steps": 1}, told[0])

    def _run(self, data: Iterator, forward_only: bool) -> float:
        results = self._forward_backward(
            forward_step_func=self._forward_step,
            data_iterator=data,
            model=self._chunks,
            num_microbatches=MICROBATCHES,
            seq_length=CONTEXT,
            micro_batch_size=1,
            forward_only=forward_only,
        )
        return float(sum(one["loss"] for one in results)) / MICROBATCHES if results else float("nan")


def _codes(example: Path) -> tuple[torch.Tensor, int]:
    text = (example / "sonnets.txt").read_text(encoding="utf-8")
    alphabet = sorted(set(text))
    return torch.tensor([alphabet.index(character) for character in text]), len(alphabet)


def processes() -> Iterator[tuple[str, int]]:
    """Yield role and number of this rank's processes."""
    yield "trainer", os.getpid()
    roles = {"perseus_ds.device.keeper": "keeper", "perseus_ds.worker_process": "worker"}
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            for pid in (task / "children").read_text().split():
                command = Path(f"/proc/{pid}/cmdline").read_text()
                yield from ((role, int(pid)) for name, role in roles.items() if name in command)


def used(role: str, pid: int) -> str:
    """Return the columns of a process: its own memory, open descriptors, threads."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    return f"{role},{pid},{int(status['RssAnon'].split()[0])},{descriptors},{int(status['Threads'])}"


class Disturber:
    """Does to this rank what the plan says.

    Args:
        job: The training.
        directory: Of the run.
        watched: Whether Perseus runs at all.
    """

    def __init__(self, job: Job, directory: Path, watched: bool) -> None:
        self._job, self._directory, self._watched = job, directory, watched
        self._begins = {one.begin: one for one in read_plan(directory / "plan.json")}
        self._ends = {one.end: one for one in self._begins.values() if one.kind == "order"}

    def before(self, iteration: int) -> list[float]:
        """Disturb an iteration that is to begin; return the losses of evaluations."""
        mine, losses = dist.get_rank(), []
        if (over := self._ends.get(iteration)) and self._watched and over.rank == mine:
            self._order(over, over=True)
        if (one := self._begins.get(iteration)) is None:
            return losses
        if one.kind == "evaluation":
            losses = [self._job.evaluate() for _ in range(int(one.value))]
        if one.kind == "checkpoint":
            self._job.save()
        if self._watched and one.rank == mine:
            if one.kind in ("pause", "absence"):
                time.sleep(one.value)
            if one.kind == "keeper":
                for role, pid in processes():
                    if role == "keeper":
                        os.kill(pid, signal.SIGKILL)
            if one.kind == "order":
                self._order(one, over=False)
        return losses

    def _order(self, one: Disturbance, over: bool) -> None:
        """Order an objective: through the control file on rank 0, else from the program."""
        if one.rank == 0:
            (self._directory / "run" / "control").write_text("" if over else f"objective {one.text}\n")
        else:
            perseus_ds.set_objective(None if over else one.text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", choices=("deepspeed", "megatron"), required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--sample-every", type=int, required=True)
    parser.add_argument("--local_rank", type=int, default=-1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    job = (DeepSpeedJob if arguments.framework == "deepspeed" else MegatronJob)(arguments.directory)
    watched = os.environ.get("PERSEUS_DS_DISABLE") != "1"
    run(job, Disturber(job, arguments.directory, watched), arguments, "with" if watched else "without")
    dist.destroy_process_group()


def plan_in_force(directory: Path) -> bool:
    """Whether the first plan is: disturbances begin after it."""
    return '"phase": "enforcing"' in (directory / "run" / "events.jsonl").read_text()


def run(job: Job, disturber: Disturber, arguments: argparse.Namespace, name: str) -> None:
    """Train, write the losses to losses-NAME.txt, and what the processes use to used-NAME-RANK.csv."""
    rank, end_s = dist.get_rank(), time.monotonic() + 60.0 * arguments.minutes
    losses = (arguments.directory / f"losses-{name}.txt").open("w") if rank == job.reports else None
    samples = (arguments.directory / f"used-{name}-{rank}.csv").open("w", buffering=1)
    samples.write("iteration,time_s,role,pid,memory_kb,descriptors,threads\n")
    gc.collect()
    gc.freeze()
    done = 0
    for iteration in range(arguments.iterations):
        if iteration % STOP_EVERY == 0:
            late = torch.tensor([time.monotonic() > end_s])
            dist.broadcast(late, 0)
            if late.item():
                break
        if name == "with" and iteration in SETTLING and not plan_in_force(arguments.directory):
            time.sleep(_REST_S)
        found = [*disturber.before(iteration), job.step()]
        done += 1
        if losses:
            losses.writelines(f"{loss.hex()}\n" for loss in found)
        if iteration % arguments.sample_every == 0:
            for role, pid in processes():
                with suppress(OSError, KeyError):  # it may just have been killed
                    samples.write(f"{iteration},{time.monotonic():.3f},{used(role, pid)}\n")
    if losses:
        losses.close()
        (arguments.directory / "done").write_text(str(done))


if __name__ == "__main__":
    main()
