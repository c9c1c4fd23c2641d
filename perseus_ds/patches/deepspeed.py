"""DeepSpeed's pipeline engine. The hooks replace the instruction map of every engine and frame its batches.

The map holds the functions themselves, so patching ``_exec_forward_pass`` and the like has no effect.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from perseus_ds.pipeline.events import Direction, Listener, Operation, Topology, Transfer
from perseus_ds.pipeline.kinds import Kind

from .checkpoints import loading, saving
from .integration import Integration, exchange, instruction, reported
from .monitors import offer_monitor
from .target import Target

__all__ = ["DEEPSPEED"]

_COMMANDS = {
    "ForwardPass": Kind.FORWARD,
    "BackwardPass": Kind.BACKWARD,
    "LoadMicroBatch": Kind.LOAD,
    "ReduceTiedGrads": Kind.REDUCE,
    "ReduceGrads": Kind.REDUCE,
    "OptimizerStep": Kind.OPTIMIZER,
}
# Direction, tag, and whether the other side is downstream (towards the loss).
_TRANSFERS = {
    "SendActivation": (Direction.SEND, "activation", True),
    "RecvActivation": (Direction.RECEIVE, "activation", False),
    "SendGrad": (Direction.SEND, "gradient", False),
    "RecvGrad": (Direction.RECEIVE, "gradient", True),
}
# DualPipeV's sends and receives only queue up; this command runs them all.
_COMMIT = "CommitP2P"
# Sections of the configuration that change an instruction's time but no parameter's shape.
_TIMED_SECTIONS = (
    "activation_checkpointing",
    "bf16",
    "communication_data_type",
    "compile",
    "fp16",
    "tensor_parallel",
    "torch_autocast",
    "zero_optimization",
)
_COUNTED = (Kind.FORWARD, Kind.BACKWARD, Kind.LOAD)
_ENGINE = "deepspeed.runtime.pipe.engine"
_COMMAND_CLASSES = "deepspeed.runtime.pipe.schedule"
_GRID = "deepspeed.runtime.pipe.topology"
# The position of a rank is asked of these.
_GRID_FUNCTIONS = tuple(f"get_{axis}_parallel_{what}" for axis in ("data", "slice") for what in ("rank", "world_size"))


class _InstructionMap(dict[type, Callable[..., Any]]):
    """An engine's instruction map with reporting functions.

    Attributes:
        topology: Position of the engine's rank.
    """

    def __init__(self, engine: Any, integration: Integration) -> None:
        original = engine._INSTRUCTION_MAP
        self._batched = any(command.__name__ == _COMMIT for command in original)
        self._queued: list[Transfer] = []
        self._counts: Counter[tuple[Kind, int]] = Counter()
        self.topology = _topology(engine, integration.framework, chunks=2 if self._batched else 1)
        super().__init__(
            {command: self._hooked(command.__name__, run, integration) for command, run in original.items()}
        )

    def batch_begins(self) -> None:
        """Restart the count of micro-batches; buffer ids are reused and identify nothing."""
        self._counts.clear()
        self._queued.clear()

    @property
    def passes(self) -> tuple[int, int]:
        """Number of forwards and of backwards in the batch so far."""
        forwards, backwards = (
            sum(count for (counted, _), count in self._counts.items() if counted is kind)
            for kind in (Kind.FORWARD, Kind.BACKWARD)
        )
        return forwards, backwards

    def _hooked(self, command: str, run: Callable[..., Any], integration: Integration) -> Callable[..., Any]:
        if command in _TRANSFERS:
            return reported(integration, run, functools.partial(self._transfer, _TRANSFERS[command]))
        if command == _COMMIT:
            return reported(integration, run, self._commit)
        if command in _COMMANDS:
            return reported(integration, run, functools.partial(self._instruction, _COMMANDS[command]))
        return run

    def _instruction(self, kind: Kind, _engine: Any, *_: Any, phase: int = 0, **__: Any) -> Operation:
        if kind not in _COUNTED:
            return instruction(kind, -1, 0)
        microbatch = self._counts[kind, phase]
        self._counts[kind, phase] = microbatch + 1
        return instruction(kind, microbatch, phase)

    def _transfer(
        self, transfer: tuple[Direction, str, bool], _engine: Any, *_: Any, phase: int = 0, **__: Any
    ) -> Operation | None:
        direction, tag, downstream = transfer
        # In DualPipeV's second phase the data flows back towards stage 0.
        step = 1 if downstream == (phase == 0) else -1
        one = _transfer(direction, self.topology.stage + step, tag)
        if self._batched:
            self._queued.append(one)
            return None
        return exchange(Kind.EXCHANGE, (one,))

    def _commit(self, _engine: Any) -> Operation | None:
        if not self._queued:
            return None
        transfers = tuple(self._queued)
        self._queued.clear()
        return exchange(Kind.EXCHANGE, transfers)


_transfer = functools.cache(Transfer)


def _wrap_constructor(original: Callable[..., None], integration: Integration) -> Callable[..., None]:
    @functools.wraps(original)
    def construct(engine: Any, *args: Any, **kwargs: Any) -> None:
        original(engine, *args, **kwargs)
        if integration.listener is not None:
            _hand_on_configuration(engine, integration.listener)

    return construct


def _hand_on_configuration(engine: Any, listener: Listener) -> None:
    source = engine.config if isinstance(engine.config, str) else "DeepSpeed configuration"
    listener.framework_configured(engine._config._param_dict.get("perseus"), source)


def _wrap_batch(original: Callable[..., Any], integration: Integration, *, training: bool) -> Callable[..., Any]:
    @functools.wraps(original)
    def run_batch(engine: Any, *args: Any, **kwargs: Any) -> Any:
        listener = integration.listener
        if listener is None:
            return original(engine, *args, **kwargs)
        # Here and not in the constructor, so that engines made before the installation are hooked too.
        commands = engine._INSTRUCTION_MAP
        if not isinstance(commands, _InstructionMap):
            _hand_on_configuration(engine, listener)
            made = integration.look(lambda: _InstructionMap(engine, integration))
            if made is None:
                return original(engine, *args, **kwargs)
            commands = made
            offer_monitor(engine)
            integration.replace(engine, "_INSTRUCTION_MAP", commands)
        commands.batch_begins()
        microbatches = kwargs.get("num_micro_batches") or engine.micro_batches
        listener.iteration_begin(commands.topology, microbatches, training)
        result = original(engine, *args, **kwargs)
        listener.iteration_end()
        if training:
            integration.expect_passes(*commands.passes, microbatches * commands.topology.chunks)
        return result

    return run_batch


def _topology(engine: Any, framework: str, chunks: int) -> Topology:
    grid = engine.grid
    return Topology(
        rank=engine.global_rank,
        world_size=grid.world_size,
        pipeline=grid.get_data_parallel_rank(),
        pipelines=grid.get_data_parallel_world_size(),
        stage=engine.stage_id,
        stages=engine.num_stages,
        # Not get_model_parallel_rank(): without tensor parallelism that is the pipeline rank.
        shard_rank=grid.get_slice_parallel_rank(),
        shard_size=grid.get_slice_parallel_world_size(),
        chunks=chunks,
        framework=framework,
        fingerprint=_fingerprint(engine),
    )


def _fingerprint(engine: Any) -> str:
    """Return a digest of all that affects instruction times: shapes, precision, partition, recomputation, settings."""
    shapes = [(name, tuple(weight.shape), str(weight.dtype)) for name, weight in engine.module.named_parameters()]
    depends_on = (
        shapes,
        engine.micro_batch_size,
        list(engine.module.parts),
        engine.module.activation_checkpoint_interval,
        [engine._config._param_dict.get(section) for section in _TIMED_SECTIONS],
    )
    return hashlib.sha256(repr(depends_on).encode()).hexdigest()[:16]


def _find_targets() -> tuple[Target, ...]:
    return (
        Target(_ENGINE, "PipelineEngine._INSTRUCTION_MAP"),
        Target(_ENGINE, "PipelineEngine._exec_schedule", ("pipe_schedule",)),
        Target(_ENGINE, "PipelineEngine.__init__", wrap=_wrap_constructor),
        Target(
            _ENGINE,
            "PipelineEngine.train_batch",
            wrap=functools.partial(_wrap_batch, training=True),
        ),
        Target(
            _ENGINE,
            "PipelineEngine.eval_batch",
            wrap=functools.partial(_wrap_batch, training=False),
        ),
        saving("deepspeed.runtime.engine", "DeepSpeedEngine.save_checkpoint", "save_dir"),
        loading("deepspeed.runtime.engine", "DeepSpeedEngine.load_checkpoint", "load_dir"),
        *(Target(_COMMAND_CLASSES, command) for command in (*_COMMANDS, *_TRANSFERS)),
        *(Target(_GRID, f"PipelineParallelGrid.{name}") for name in _GRID_FUNCTIONS),
    )


DEEPSPEED = Integration("deepspeed", "deepspeed", ">=0.16.9,<=0.19.8", _find_targets)
"""DeepSpeed's PipelineEngine, DualPipeV included."""
