"""Who listens hears every event."""

import inspect

import pytest

from perseus_ds.pipeline.events import Listener, Operation, Topology
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.runtime.listener import PerseusListener

EVENTS = {name: method for name, method in vars(Listener).items() if inspect.isfunction(method) and name[0] != "_"}


@pytest.mark.parametrize("name", [name for name in EVENTS if name != "__init__"])
def test_the_package_s_listener_takes_each_event_as_it_is_reported(name: str) -> None:
    reported, heard = inspect.signature(EVENTS[name]), inspect.signature(getattr(PerseusListener, name))

    assert list(heard.parameters) == list(reported.parameters)


def test_there_is_an_event_for_each_begin_and_its_end() -> None:
    begins = {name.removesuffix("_begin") for name in EVENTS if name.endswith("_begin")}

    assert begins == {"iteration", "operation"}
    assert {f"{name}_end" for name in begins} <= set(EVENTS)


def test_what_is_not_told_of_an_operation_or_a_rank_is_nothing_in_particular() -> None:
    optimizer = Operation(Kind.OPTIMIZER)
    assert (optimizer.microbatch, optimizer.chunk, optimizer.transfers) == (-1, 0, ())
    assert (optimizer.backward_microbatch, optimizer.backward_chunk) == (-1, -1)

    alone = Topology(0, 1, 0, 1, 0, 1)
    assert (alone.shard_rank, alone.shard_size, alone.chunks) == (0, 1, 1)
