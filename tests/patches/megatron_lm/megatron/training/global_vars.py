"""The writers are on the last rank."""

_GLOBAL_ARGS = None
_GLOBAL_TENSORBOARD_WRITER = None
_GLOBAL_WANDB_WRITER = None


def get_args():
    assert _GLOBAL_ARGS is not None, "args is not initialized."
    return _GLOBAL_ARGS


def get_tensorboard_writer():
    return _GLOBAL_TENSORBOARD_WRITER


def get_wandb_writer():
    return _GLOBAL_WANDB_WRITER


def set_global_variables(args):
    global _GLOBAL_ARGS, _GLOBAL_TENSORBOARD_WRITER, _GLOBAL_WANDB_WRITER
    _GLOBAL_ARGS = args
    if args.rank != args.world_size - 1:
        return
    if args.tensorboard_dir:
        from torch.utils.tensorboard import SummaryWriter

        _GLOBAL_TENSORBOARD_WRITER = SummaryWriter(log_dir=args.tensorboard_dir)
    if args.wandb_project:
        import wandb

        wandb.init(project=args.wandb_project, config=vars(args))
        _GLOBAL_WANDB_WRITER = wandb
