"""Two pipelines of two stages trained by hand over gloo, with Perseus listening, and with one fault on demand."""

import hashlib
import json
import os
import signal
import time
from concurrent.futures import Future
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist

import perseus_ds
from perseus_ds.coordination import coordinator, gloo_group, plan_channel
from perseus_ds.pipeline.events import Direction, Operation, Topology, Transfer
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.runtime import PerseusListener, listener

PIPELINES, STAGES, MICROBATCHES, WIDTH = 2, 2, 3, 8
FAULT_AT = 30
ITERATIONS = 60  # after so many the weights are compared


class Stage:
    """One stage of one pipeline: a layer, its neighbour, its replicas."""

    def __init__(self, rank: int) -> None:
        self.pipeline, self.stage = rank % PIPELINES, rank // PIPELINES
        self.neighbour = (1 - self.stage) * PIPELINES + self.pipeline
        groups = [dist.new_group([stage * PIPELINES + p for p in range(PIPELINES)]) for stage in range(STAGES)]
        self.replicas = groups[self.stage]
        generator = torch.Generator().manual_seed(self.stage)
        self.weight = (torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH).requires_grad_()
        self.data = torch.Generator().manual_seed(100 + self.pipeline)

    def iteration(self, microbatches: int, tell) -> None:
        """All forwards, then all backwards, then the step."""
        kept = []
        for microbatch in range(microbatches):
            if self.stage == 0:
                inputs = torch.randn(4, WIDTH, generator=self.data)
            else:
                inputs = torch.empty(4, WIDTH)
                with tell(Kind.EXCHANGE, transfer=(Direction.RECEIVE, "activation")):
                    dist.recv(inputs, self.neighbour)
                inputs.requires_grad_()
            with tell(Kind.FORWARD, microbatch):
                outputs = torch.tanh(inputs @ self.weight)
            if self.stage == 0:
                with tell(Kind.EXCHANGE, transfer=(Direction.SEND, "activation")):
                    dist.send(outputs.detach(), self.neighbour)
            kept.append((inputs, outputs))
        for microbatch, (inputs, outputs) in enumerate(kept):
            gradient = torch.ones_like(outputs)
            if self.stage == 0:
                with tell(Kind.EXCHANGE, transfer=(Direction.RECEIVE, "gradient")):
                    dist.recv(gradient, self.neighbour)
            with tell(Kind.BACKWARD, microbatch):
                outputs.backward(gradient)
            if self.stage == 1:
                with tell(Kind.EXCHANGE, transfer=(Direction.SEND, "gradient")):
                    dist.send(inputs.grad, self.neighbour)
        with tell(Kind.REDUCE):
            dist.all_reduce(self.weight.grad, group=self.replicas)
        with tell(Kind.OPTIMIZER), torch.no_grad():
            self.weight -= 0.01 * self.weight.grad
            self.weight.grad = None


class Telling:
    """``with tell(kind, ...)``: the operation's begin and end reach the listener."""

    def __init__(self, runtime: PerseusListener | None, stage: int) -> None:
        self.runtime, self.peer = runtime, 1 - stage

    def __call__(self, kind, microbatch=-1, transfer=None):
        transfers = (Transfer(transfer[0], self.peer, transfer[1]),) if transfer else ()
        self.operation = Operation(kind, microbatch, transfers=transfers)
        return self

    def __enter__(self):
        if self.runtime is not None:
            self.runtime.operation_begin(self.operation)

    def __exit__(self, *error):
        if self.runtime is not None:
            self.runtime.operation_end(self.operation)


def break_coordinator() -> None:
    def solve(*_):
        raise ValueError("made to fail")

    coordinator.Coordinator.solve = solve


def break_rounding() -> None:
    def discretize_shard(*_):
        raise ValueError("made to fail")

    plan_channel.PlanChannel._discretize_shard = discretize_shard


def damage_broadcasts() -> None:
    """Flip a byte of whatever large arrives here."""
    broadcast = gloo_group.GlooGroup.broadcast

    def damaged(group, tensor):
        received = broadcast(group, tensor)
        if tensor.dtype == torch.uint8 and tensor.numel() > 2000 and group.index != 0:
            received[1000] ^= 255
        return received

    gloo_group.GlooGroup.broadcast = damaged


def fall_silent(runtime: PerseusListener) -> None:
    """From now on this rank takes no part in any round, and waits for none."""
    quiet: Future = Future()
    assert runtime.session is not None
    runtime.session._bus.post = lambda row: quiet
    runtime.session._read_round = lambda: None


def orders(results: Path) -> str:
    """What rank 0 reads, on all ranks: they stop, and grow, at the same iteration."""
    told = [(results / "orders").read_text() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(told)
    return told[0]


def train(results: Path, iterations: int, fault: str = "", victim: int = -1) -> None:
    """Train as the rank that the environment says, with a fault on the victim.

    With 0 iterations it trains until results/orders says ``stop``; ``larger`` gives the iterations more micro-batches.
    Every rank writes results/<rank>.json at the end. On the way, results/<rank>.progress has its process, its
    iteration and whether Perseus is on.
    """
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stage = Stage(rank)
    perseus_ds.install(results / "perseus.yaml")
    runtime = listener._listener  # none where Perseus is disabled
    if runtime is not None and (results / "checkpoint").exists():
        runtime.checkpoint_loaded(str(results / "checkpoint"))
    if fault == "coordinator" and rank == victim:
        break_coordinator()
    if fault == "rounding" and rank == victim:
        break_rounding()
    if fault == "damage" and rank == victim:
        damage_broadcasts()
    topology = Topology(
        rank,
        dist.get_world_size(),
        stage.pipeline,
        PIPELINES,
        stage.stage,
        STAGES,
        framework="by hand",
        fingerprint="1",
    )
    times_s, order, digest = [], "", ""
    tell = Telling(runtime, stage.stage)
    for iteration in range(iterations) if iterations else count():
        before, order = order, "" if iterations else orders(results)
        if order == "stop":
            break
        if order.startswith("straggler") and order != before and rank == dist.get_world_size() - 1:
            _, pipeline, slowdown = order.split()
            perseus_ds.set_straggler(int(pipeline), float(slowdown))
        if order == "save" and order != before and runtime is not None:
            (results / "checkpoint").mkdir(exist_ok=True)
            runtime.checkpoint_saved(str(results / "checkpoint"))
        listens = runtime is not None and runtime.session is not None
        (results / f"{rank}.progress").write_text(f"{os.getpid()} {iteration} {listens}")
        if rank == victim and iteration == FAULT_AT:
            if fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if fault == "error" and runtime is not None:
                runtime.session._meter._recorder.operation_begin = None
            if fault == "silence" and runtime is not None:
                fall_silent(runtime)
        microbatches = MICROBATCHES + 2 * (order == "larger")
        begin_s = time.monotonic()
        if runtime is not None:
            runtime.iteration_begin(topology, microbatches, True)
        stage.iteration(microbatches, tell)
        if runtime is not None:
            runtime.iteration_end()
        times_s.append(time.monotonic() - begin_s)
        if iteration < ITERATIONS:
            digest = hashlib.sha256(stage.weight.detach().numpy().tobytes()).hexdigest()
    result = {
        "digest": digest,
        "longest_s": max(times_s[1:]),
        "on": runtime is not None and runtime.session is not None,
    }
    (results / f"{rank}.json").write_text(json.dumps(result))
    dist.destroy_process_group()
