"""What each of four ranks runs to show that one Megatron-Core version is hooked: its real schedules over gloo."""

import hashlib
import inspect
import sys
from pathlib import Path
from types import SimpleNamespace

import megatron_shim  # noqa: F401
import torch
from hook_spy import Spy, write

from perseus_ds.messages import PerseusError
from perseus_ds.patches import install_all, uninstall_all

# A process that a checkpoint's writer spawns runs the main file again, if there is one.
del globals()["__file__"]
MICROBATCHES, SEQUENCE, BATCH, HIDDEN = 8, 4, 2, 8
spy = Spy()
found: dict = {}

assert "megatron.core" not in sys.modules
install_all(spy)
import megatron.core  # noqa: E402
from megatron.core import dist_checkpointing, parallel_state  # noqa: E402
from megatron.core.enums import ModelType  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func, p2p_communication, schedules  # noqa: E402
from megatron.core.transformer import TransformerConfig, enums  # noqa: E402


class Chunk(torch.nn.Module):
    """The least that a schedule wants of a model chunk."""

    def __init__(self, config: TransformerConfig, vp_stage: int | None) -> None:
        super().__init__()
        self.config, self.vp_stage = config, vp_stage
        self.model_type = ModelType.encoder_or_decoder
        self.layer = torch.nn.Linear(HIDDEN, HIDDEN)
        self.input_tensor = None

    def set_input_tensor(self, tensor) -> None:
        self.input_tensor = tensor[0] if isinstance(tensor, list) else tensor

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return self.layer(data if self.input_tensor is None else self.input_tensor)


def forward_step(iterator, chunk):
    return chunk(next(iterator)), lambda output: (output.square().mean(), {})


def batches():
    generator = torch.Generator().manual_seed(2)
    while True:
        yield torch.randn(SEQUENCE, BATCH, HIDDEN, generator=generator)


def attributes() -> list[tuple[str, int]]:
    communicator = getattr(p2p_communication, "P2PCommunicator", schedules)
    owners = [schedules, p2p_communication, communicator, dist_checkpointing]
    # Without modules: a package gets them as they are imported.
    return [
        (name, id(value))
        for owner in owners
        for name, value in sorted(vars(owner).items())
        if not inspect.ismodule(value)
    ]


class Case:
    """One parallel layout: builds the model, runs iterations."""

    def __init__(
        self,
        stages: int,
        chunks: int = 1,
        tensor: int = 1,
        context: int = 1,
        experts: int = 1,
        overlap: bool = False,
        warm_up: bool = False,
    ) -> None:
        virtual = chunks if chunks > 1 else None
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=tensor,
            pipeline_model_parallel_size=stages,
            virtual_pipeline_model_parallel_size=virtual,
            context_parallel_size=context,
            expert_model_parallel_size=experts,
        )
        self.config = TransformerConfig(
            num_layers=8,
            hidden_size=HIDDEN,
            num_attention_heads=2,
            tensor_model_parallel_size=tensor,
            pipeline_model_parallel_size=stages,
            virtual_pipeline_model_parallel_size=virtual,
            context_parallel_size=context,
            pipeline_dtype=torch.float32,
            overlap_p2p_comm=overlap,
            batch_p2p_comm=not overlap,
        )
        self.config.overlap_p2p_comm_warmup_flush = warm_up
        self.config.finalize_model_grads_func = self.finalize = lambda *args, **kwargs: None
        torch.manual_seed(1)
        self.model = [Chunk(self.config, index if virtual else None) for index in range(chunks)]

    def run(self, forward_only: bool = False, **more) -> None:
        get_forward_backward_func()(
            forward_step_func=forward_step,
            data_iterator=[batches() for _ in self.model] if len(self.model) > 1 else batches(),
            model=self.model if len(self.model) > 1 else self.model[0],
            num_microbatches=MICROBATCHES,
            seq_length=SEQUENCE * self.config.context_parallel_size,  # of which each rank has its part
            micro_batch_size=BATCH,
            forward_only=forward_only,
            **more,
        )

    def gradients(self) -> str:
        """Return a digest of all gradients, and forget them."""
        weights = [weight for chunk in self.model for weight in chunk.parameters()]
        digest = hashlib.sha256(b"".join(weight.grad.numpy().tobytes() for weight in weights)).hexdigest()
        for weight in weights:
            weight.grad = None
        return digest


torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()

found["version"] = megatron.core.__version__
hooked = schedules.forward_step
uninstall_all()
found["originals are back"] = schedules.forward_step is getattr(hooked, "__wrapped__", None)
untouched = attributes()

LAYOUTS = {
    "1F1B PP4": {"stages": 4},
    "interleaved PP4xVP2": {"stages": 4, "chunks": 2},
    "interleaved PP4xVP2, overlap": {"stages": 4, "chunks": 2, "overlap": True},
    "interleaved PP4xVP2, overlap in the warm-up too": {"stages": 4, "chunks": 2, "overlap": True, "warm_up": True},
    "interleaved PP2xVP2": {"stages": 2, "chunks": 2},
    "interleaved PP2xVP2, overlap": {"stages": 2, "chunks": 2, "overlap": True},
    "PP2xDP2": {"stages": 2},
    "PP2xTP2": {"stages": 2, "tensor": 2},
    "PP2xCP2": {"stages": 2, "context": 2},
    "PP2xEP2": {"stages": 2, "experts": 2},
    "PP1": {"stages": 1},
}
found["cases"] = {}
for name, layout in LAYOUTS.items():
    case = Case(**layout)
    uninstall_all()
    case.run()
    case_found = {"gradients without": case.gradients()}
    install_all(Spy())
    install_all(spy)
    case.run()
    case_found["gradients with"] = case.gradients()
    if not case.config.overlap_p2p_comm_warmup_flush:
        # With it, gloo drops sends that nobody waits for, and Megatron-Core hangs by itself.
        case.run(forward_only=True)
    case_found["iterations"] = spy.take()
    case_found["finalize is back"] = case.config.finalize_model_grads_func is case.finalize
    found["cases"][name] = case_found
    if name != "PP1":
        parallel_state.destroy_model_parallel()

folder = Path(sys.argv[1], "checkpoints")
if rank == 0:
    folder.mkdir()
torch.distributed.barrier()
dist_checkpointing.save({"steps": 3}, str(folder))
dist_checkpointing.load({}, checkpoint_dir=str(folder))
found["checkpoints"] = [(what, Path(directory).name) for what, directory in spy.checkpoints]

# Up to 0.15 a scope is a string, since 0.16 a list of enumerated ones; per-layer graphs stay allowed.
scope = [enums.CudaGraphScope.full_iteration] if hasattr(enums, "CudaGraphScope") else "full_iteration"
GRAPH = "--cuda-graph-scope full_iteration"
REFUSED = {
    f"{GRAPH}, --enable-cuda-graph": {"enable_cuda_graph": True, "cuda_graph_scope": scope},
    f"{GRAPH}, --cuda-graph-impl local": {"cuda_graph_impl": "local", "cuda_graph_scope": scope},
    f"{GRAPH} among others": {"cuda_graph_impl": "local", "cuda_graph_scope": ["attn", "full_iteration"]},
    "--cuda-graph-impl full_iteration": {"cuda_graph_impl": "full_iteration", "cuda_graph_scope": []},
    "--hybrid-context-parallel": {"hybrid_context_parallel": True},
}
found["refused"] = {}


def refusal(**more) -> str | None:
    try:
        case.run(**more)
    except PerseusError as error:
        return str(error)
    return None


for name, settings in REFUSED.items():
    if not all(hasattr(case.config, key) for key in settings):
        continue
    before = {key: getattr(case.config, key, None) for key in settings}
    vars(case.config).update(settings)
    found["refused"][name] = refusal()
    vars(case.config).update(before)
# Whatever the configuration says: under capture we make no CUDA call, and what the hooks do not see is missed.
outside = vars(torch.cuda).copy()
torch.cuda.is_initialized = torch.cuda.is_current_stream_capturing = lambda: True
found["refused"]["a captured iteration"] = refusal()
vars(torch.cuda).update(outside)
hooked, schedules.backward_step = schedules.backward_step, inspect.unwrap(schedules.backward_step)
found["refused"]["a mode that nobody knows"] = refusal()
schedules.backward_step = hooked
spy.take()

case.config.cuda_graph_impl, case.config.cuda_graph_scope = "transformer_engine", "full"
found["per-layer graphs"] = refusal()

parameters = inspect.signature(inspect.unwrap(schedules.forward_backward_no_pipelining)).parameters
argument = next((name for name in ("grad_finalize_pgs", "pg_collection") if name in parameters), None)
if argument:
    everybody = torch.distributed.new_group()
    names = ("tp", "cp", "embd", "pos_embd", "dp_cp")
    alone = parallel_state.get_pipeline_model_parallel_group()
    found["their groups"] = refusal(**{argument: SimpleNamespace(**dict.fromkeys(names, alone), pp=alone)})
    own_groups = {argument: SimpleNamespace(**dict.fromkeys(names, alone), pp=everybody)}
    found["refused"]["process groups of your own"] = refusal(**own_groups)
if "p2p_communicator" in parameters:
    found["refused"]["a pipeline of several modules"] = refusal(p2p_communicator=SimpleNamespace())
found["runs again"] = len(spy.take())

install_all(spy, on_unsupported="warn")
case.config.cuda_graph_impl, case.config.cuda_graph_scope = "local", scope
case.run()
if argument:
    install_all(spy, on_unsupported="warn")
    case.config.cuda_graph_impl = None
    case.run(**own_groups)
found["unpatched under warn"], found["told so"] = spy.take(), spy.was_unhooked

uninstall_all()
found["changed after uninstall"] = sorted({name for name, _ in set(attributes()) ^ set(untouched)})
case.run()
found["events after uninstall"] = spy.take()
write(Path(sys.argv[1]), rank, found)
torch.distributed.destroy_process_group()
