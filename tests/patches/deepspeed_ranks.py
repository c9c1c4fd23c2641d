"""What each of two ranks runs to show that one DeepSpeed version is hooked: a real PipelineEngine over gloo."""

import hashlib
import sys
from pathlib import Path

import torch
from hook_spy import Spy, write

from perseus_ds.patches import install_all, uninstall_all

MICROBATCHES = 4
spy = Spy()
found: dict = {}

assert "deepspeed" not in sys.modules
install_all(spy)
import deepspeed  # noqa: E402
from deepspeed.pipe import LayerSpec, PipelineModule  # noqa: E402
from deepspeed.runtime.pipe import engine as engine_module  # noqa: E402

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
HOOKED = ("__init__", "train_batch", "eval_batch")


def attributes() -> list[tuple[str, int]]:
    """Return every attribute of the engine's module and class, by identity."""
    owners = (engine_module, engine_module.PipelineEngine)
    return [(name, id(value)) for owner in owners for name, value in sorted(vars(owner).items())]


def build(module_class: type = PipelineModule, **config: object):
    torch.manual_seed(1)
    module = module_class(
        layers=[LayerSpec(torch.nn.Linear, 8, 8) for _ in range(4)],
        num_stages=2,
        loss_fn=torch.nn.functional.mse_loss,
    )
    settings = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": MICROBATCHES,
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
        "steps_per_print": 1000,
        **config,
    }
    return deepspeed.initialize(model=module, model_parameters=list(module.parameters()), config=settings)[0]


def batches():
    generator = torch.Generator().manual_seed(2)
    while True:
        yield torch.randn(2, 8, generator=generator), torch.randn(2, 8, generator=generator)


def digest(engine) -> str:
    raw = b"".join(weight.detach().numpy().tobytes() for weight in engine.module.parameters())
    return hashlib.sha256(raw).hexdigest()


torch.set_num_threads(1)
deepspeed.init_distributed("gloo")
rank = torch.distributed.get_rank()

found["version"] = deepspeed.__version__
found["hooked by the import"] = all(hasattr(vars(engine_module.PipelineEngine)[name], "__wrapped__") for name in HOOKED)
ours = {name: vars(engine_module.PipelineEngine)[name] for name in HOOKED}
uninstall_all()
found["originals are back"] = all(vars(engine_module.PipelineEngine)[name] is ours[name].__wrapped__ for name in HOOKED)
untouched = attributes()

plain, data = build(), batches()
found["losses without"] = [float(plain.train_batch(data)).hex() for _ in range(3)]
found["weights without"] = digest(plain)

hooked, data = build(), batches()
install_all(Spy())
install_all(spy)
found["events before the first batch"] = spy.take()
found["losses with"] = [float(hooked.train_batch(data)).hex()]
hooked.eval_batch(batches())
found["losses with"] += [float(hooked.train_batch(data)).hex() for _ in range(2)]
found["weights with"] = digest(hooked)
found["iterations"] = spy.take()

folder = sys.argv[1] + "/checkpoints"
hooked.save_checkpoint(folder)
hooked.load_checkpoint(load_dir=folder)
found["checkpoints"] = [(what, Path(directory).name) for what, directory in spy.checkpoints]

found["sections of an engine made before"], spy.sections = spy.sections, []
build(perseus={"run_dir": "runs/here"})
found["sections of an engine made after"] = [*spy.sections]

if hasattr(deepspeed, "DualPipeVModule"):
    from deepspeed.runtime.pipe.schedule import DualPipeVSchedule

    build(deepspeed.DualPipeVModule).train_batch(batches())
    found["dualpipev"] = spy.take()
    schedule = DualPipeVSchedule(MICROBATCHES, 2, rank)
    found["dualpipev expected"] = [
        f"{type(command).__name__[0]}{command.buffer_id - command.phase * MICROBATCHES}{'.1' * command.phase}"
        for step in schedule.steps()
        for command in step
        if type(command).__name__ in ("ForwardPass", "BackwardPass")
    ]

uninstall_all()
found["untouched after uninstall"] = attributes() == untouched and "_INSTRUCTION_MAP" not in vars(hooked)
hooked.train_batch(data)
found["events after uninstall"] = spy.take()
write(Path(sys.argv[1]), rank, found)
torch.distributed.destroy_process_group()
