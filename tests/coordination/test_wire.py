"""What ranks send each other comes through as it is, and nothing that arrives is ever called."""

import json
import pickle
from collections import deque
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_job import PROFILE, TOPOLOGY, make, traces
from made_up_plans import STAGES, first_table

from perseus_ds.config import Config
from perseus_ds.coordination.decision import IterationInput
from perseus_ds.coordination.failure import Failure
from perseus_ds.coordination.phase_controller import PhaseController
from perseus_ds.coordination.wire import decode, encode
from perseus_ds.device.clock_keeper import ClockKeeper
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.sweep import Sweep
from perseus_ds.profiling.table import CurveKey

ATOMS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.tuples(st.integers(), st.text()), inner, max_size=4)
    ),
    max_leaves=10,
)


@settings(max_examples=100)
@given(VALUES)
def test_containers_come_through_with_their_types(value):
    assert repr(decode(encode(value))) == repr(value)


@pytest.mark.parametrize(
    "array",
    [np.arange(6.0).reshape(2, 3).T, np.zeros((0, 3), np.int32), np.array([True, False]), np.float64(0.1), np.array(7)],
)
def test_arrays_come_through_exactly_and_can_be_written(array):
    found = decode(encode([array]))[0]
    assert (type(found), found.dtype, found.shape) == (type(array), array.dtype, array.shape)
    assert np.array_equal(found, array)
    assert not isinstance(found, np.ndarray) or found.flags.writeable


def test_all_that_ranks_tell_each_other_comes_through(tmp_path):
    coordinator = make(tmp_path)
    draft = coordinator.resume()
    sent = [
        Config(run_dir=tmp_path, objective={"slowdown": 1.05}, rejoin={"attempts": 7}),
        Failure("a line", "a traceback"),
        TOPOLOGY,
        traces(),
        PROFILE,
        {(0, (1.0, 1.1)): deque([CurveKey(0, Kind.FORWARD)], maxlen=3), Path("a/b"): {1, 2}, b"x": frozenset("ab")},
        draft.discretize_shard(0, 1),
    ]
    found = decode(encode(sent))
    assert found[:-2] == sent[:-2]
    assert found[0].model_fields_set == sent[0].model_fields_set
    assert (found[-2], repr(found[-1])) == (sent[-2], repr(sent[-1]))
    assert coordinator.finish(1, decode(encode(draft)), [found[-1]]).t_prime_s(np.ones((1, 2))) > 0.0


def test_a_decision_core_goes_on_as_it_was(tmp_path):
    core = PhaseController(Config(run_dir=tmp_path), 1, STAGES, sets_clocks=True)
    core._adopt(first_table(1), 0)
    copy = decode(encode(core))
    for iteration in range(1, 4):
        seen = IterationInput(iteration, 4, None, ())
        assert repr(copy.decide(seen)) == repr(core.decide(seen))


def test_what_is_held_twice_is_one_object_at_the_receiver():
    inner = [1, [2]]
    first, second = decode(encode((inner, {"a": inner})))
    assert first is second["a"]


@pytest.mark.parametrize("value", [object(), ClockKeeper, len, np.array([None]), RuntimeError("x"), 1j])
def test_what_is_no_data_is_not_sent(value):
    with pytest.raises(TypeError, match="cannot be sent"):
        encode([value])


class Trap:
    """What a pickle of it would do."""

    def __reduce__(self):
        return Path.touch, (Path("trapped"),)


def crafted(*nodes: list) -> bytes:
    """A message with parts of one's own making."""
    text = json.dumps([nodes, [len(nodes) - 1]]).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Trap()),
        b"",
        crafted(["object", "subprocess:Popen", ["args"], ["true"]]),
        crafted(["object", "perseus_ds.device.clock_keeper:ClockKeeper", [], []]),
        crafted(["object", "perseus_ds.worker_process:subprocess.Popen", [], []]),
        crafted(["object", "perseus_ds.coordination.wire:encode", [], []]),
        crafted(["enum", "perseus_ds.pipeline.kinds:Kind", "no kind"]),
        crafted(["record", "perseus_ds.config.model:Config", []]),
        crafted(["array", "|O", [1], 0, 8]),
        crafted(["array", "<f8", [1 << 60], 0, 8]),
        crafted(["dict", [[0]], [1]]),
        crafted(["eval", "1"]),
        (8).to_bytes(8, "little") + b"[" * 100_000,
        (100_000).to_bytes(8, "little") + b"[" * 100_000,
    ],
)
def test_what_nobody_sent_becomes_an_error_and_is_not_called(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="not a message"):
        decode(data)
    assert list(tmp_path.iterdir()) == []


def test_an_object_is_made_without_its_constructor():
    sweep = decode(crafted(["object", "perseus_ds.profiling.sweep:Sweep", ["a"], [1]]))
    assert vars(sweep) == {"a": 1}
    assert isinstance(sweep, Sweep)


@settings(max_examples=200)
@given(st.data())
def test_a_damaged_message_is_an_error_or_data(data):
    message = bytearray(encode([traces(2), {"a": np.arange(5)}]))
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(message))
    except ValueError:
        return
