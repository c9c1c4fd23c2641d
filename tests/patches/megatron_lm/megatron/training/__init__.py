from .global_vars import get_args, get_tensorboard_writer, get_wandb_writer
from .initialize import initialize_megatron
from .training import pretrain

__all__ = ["get_args", "get_tensorboard_writer", "get_wandb_writer", "initialize_megatron", "pretrain"]
