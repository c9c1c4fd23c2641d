"""Parses the command line once before ``pretrain`` does."""

from . import arguments


def maybe_wrap_for_inprocess_restart(pretrain):
    arguments.parse_args(ignore_unknown_args=True)
    return pretrain, None
