import torch
from megatron.core import mpu
from megatron.core.rerun_state_machine import RerunMode, initialize_rerun_state_machine
from megatron.training.arguments import parse_args
from megatron.training.global_vars import set_global_variables


def initialize_megatron(extra_args_provider=None, args_defaults=None, ignore_unknown_args=False):
    args = parse_args(extra_args_provider, ignore_unknown_args)
    for name, value in (args_defaults or {}).items():
        setattr(args, name, value)
    set_global_variables(args)
    initialize_rerun_state_machine(mode=RerunMode.DISABLED)
    torch.set_num_threads(1)
    torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    mpu.initialize_model_parallel(args.tensor, args.world_size // args.tensor, args.chunks if args.chunks > 1 else None)
    torch.manual_seed(7)
