"""Modes of Megatron-Core that hide instructions or transfers from the hooks. They are found by looking.

A mode that nobody knows yet is found by what it hides: see ``Integration.expect_passes``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["hidden_mode"]

# The process groups that a schedule may be given: 0.14's name of the argument, and the one since.
_GROUPS = ("grad_finalize_pgs", "pg_collection")
_NO_PYTHON = "a replayed CUDA graph runs no Python"


def hidden_mode(config: Any, arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the mode that hides the schedule's instructions and the reason, or None.

    Args:
        config: The model's configuration.
        arguments: The arguments of the schedule function, by name.
    """
    return next(_modes(config, arguments), None)


def _modes(config: Any, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the hidden modes that are set, each with its reason."""
    if _captures_graph():
        yield "a CUDA graph of the whole iteration", _NO_PYTHON
    if flag := _full_iteration_graph(config):
        yield flag, _NO_PYTHON
    if getattr(config, "hybrid_context_parallel", False):
        yield "--hybrid-context-parallel", "it cuts every micro-batch differently"
    if not _communicator_known(arguments.get("p2p_communicator")):
        yield "a pipeline of several modules", "only the transfers of a P2PCommunicator are seen"
    if not _groups_known(next((arguments[name] for name in _GROUPS if arguments.get(name) is not None), None)):
        yield "a set of process groups of your own", "only those of megatron.core.parallel_state tell the stages"


def _captures_graph() -> bool:
    """Return whether the current stream is being captured. No other CUDA call is allowed then."""
    import torch

    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _full_iteration_graph(config: Any) -> str | None:
    """Return the option that captures whole iterations, if it is set."""
    # A way of its own since 0.18; a scope before: one string up to 0.15, then a list of enumerated ones.
    implementation = getattr(config, "cuda_graph_impl", None)
    if implementation == "full_iteration":
        return "--cuda-graph-impl full_iteration"
    scopes = getattr(config, "cuda_graph_scope", None) or ()
    names = [scopes] if isinstance(scopes, str) else [getattr(scope, "name", scope) for scope in scopes]
    enabled = getattr(config, "enable_cuda_graph", False) or implementation == "local"
    return "--cuda-graph-scope full_iteration" if enabled and "full_iteration" in names else None


def _communicator_known(communicator: Any) -> bool:
    if communicator is None:
        return True
    from megatron.core.pipeline_parallel import p2p_communication

    # Bridges between modules have classes of their own.
    return isinstance(communicator, getattr(p2p_communication, "P2PCommunicator", ()))


def _groups_known(groups: Any) -> bool:
    from megatron.core import parallel_state as state

    if not state.model_parallel_is_initialized():
        return False
    if groups is None:
        return True
    theirs, ours = getattr(groups, "pp", None), state.get_pipeline_model_parallel_group()
    return theirs is ours or (theirs is not None and _ranks(theirs) == _ranks(ours))


def _ranks(group: Any) -> list[int]:
    import torch.distributed

    return torch.distributed.get_process_group_ranks(group)
