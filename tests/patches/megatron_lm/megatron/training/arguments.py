import argparse
import os


def add_megatron_arguments(parser: argparse.ArgumentParser):
    parser = _add_network_size_args(parser)
    return _add_training_args(parser)


def parse_args(extra_args_provider=None, ignore_unknown_args=False):
    parser = argparse.ArgumentParser(description="Megatron-LM Arguments", allow_abbrev=False)
    parser = add_megatron_arguments(parser)
    if extra_args_provider is not None:
        parser = extra_args_provider(parser)
    if ignore_unknown_args:
        args, _ = parser.parse_known_args()
    else:
        args = parser.parse_args()
    args.rank = int(os.getenv("RANK", "0"))
    args.world_size = int(os.getenv("WORLD_SIZE", "1"))
    return args


def _add_network_size_args(parser):
    group = parser.add_argument_group(title="network size")
    for name, default in (("layers", 4), ("hidden", 64), ("heads", 4), ("context", 32), ("chunks", 1), ("tensor", 1)):
        group.add_argument(f"--{name}", type=int, default=default)
    group.add_argument("--overlap", action="store_true")
    return parser


def _add_training_args(parser):
    group = parser.add_argument_group(title="training")
    group.add_argument("--lr", type=float, default=1e-3)
    group.add_argument("--micro-batch-size", type=int, default=2)
    group.add_argument("--num-microbatches", type=int, default=8)
    group.add_argument("--train-iters", type=int, default=10)
    group.add_argument("--eval-interval", type=int, default=1000)
    group.add_argument("--tensorboard-dir", type=str)
    group.add_argument("--wandb-project", type=str, default="")
    return parser
