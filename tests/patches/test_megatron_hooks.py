"""Megatron-Core's real schedules in several versions, four ranks over gloo: what the hooks leave behind."""

import re
from collections import Counter

import framework_versions
import pytest
from hook_spy import expected_grid, grid, instructions, read

from perseus_ds.pipeline.schedules import interleaved, one_f_one_b

pytestmark = pytest.mark.launch

MICROBATCHES = 8
# Stages, pipelines, tensor-parallel ranks per stage, chunks, and the schedule.
CASES = {
    "1F1B PP4": (4, 1, 1, 1, one_f_one_b),
    "interleaved PP4xVP2": (4, 1, 1, 2, interleaved),
    "interleaved PP4xVP2, overlap": (4, 1, 1, 2, interleaved),
    "interleaved PP4xVP2, overlap in the warm-up too": (4, 1, 1, 2, interleaved),
    "interleaved PP2xVP2": (2, 2, 1, 2, interleaved),
    "interleaved PP2xVP2, overlap": (2, 2, 1, 2, interleaved),
    "PP2xDP2": (2, 2, 1, 1, one_f_one_b),
    "PP2xTP2": (2, 1, 2, 1, one_f_one_b),
    "PP2xCP2": (2, 1, 2, 1, one_f_one_b),
    "PP2xEP2": (2, 2, 1, 1, one_f_one_b),
    "PP1": (1, 4, 1, 1, one_f_one_b),
}
# What the line says that refuses a mode.
GRAPH = "--cuda-graph-scope full_iteration"
REFUSED = {
    f"{GRAPH}, --enable-cuda-graph": f"{GRAPH} hides",
    f"{GRAPH}, --cuda-graph-impl local": f"{GRAPH} hides",
    f"{GRAPH} among others": f"{GRAPH} hides",
    "--cuda-graph-impl full_iteration": "--cuda-graph-impl full_iteration hides",
    "--hybrid-context-parallel": "--hybrid-context-parallel hides",
    "a captured iteration": "a CUDA graph of the whole iteration hides",
    "a pipeline of several modules": "a pipeline of several modules hides",
    "process groups of your own": "a set of process groups of your own hides",
    "a mode that nobody knows": "does not know hides forwards and backwards: 8 forwards and 0 backwards",
}
case = pytest.mark.parametrize("case", CASES)


@pytest.fixture(scope="module", params=framework_versions.wanted(framework_versions.MEGATRON))
def ranks(request, tmp_path_factory) -> list[dict]:
    out = tmp_path_factory.mktemp("megatron")
    path = framework_versions.python_path("megatron-core", request.param)
    framework_versions.launch("megatron_ranks.py", 4, out, path)
    found = read(out)
    own = framework_versions.OWN_VERSIONS.get(request.param, request.param)
    assert [rank["version"] for rank in found] == [own] * 4
    return found


def pipelines_of(ranks: list[dict], case: str) -> list[list[dict]]:
    """Return the training iteration of every rank, by pipeline (and tensor-parallel rank), then stage."""
    iterations = [rank["cases"][case]["iterations"][0] for rank in ranks]
    places = sorted({(one["topology"]["pipeline"], one["topology"]["shard_rank"]) for one in iterations})
    return [
        sorted(
            (one for one in iterations if (one["topology"]["pipeline"], one["topology"]["shard_rank"]) == place),
            key=lambda one: one["topology"]["stage"],
        )
        for place in places
    ]


@case
def test_order_of_instructions_is_the_generator_s(ranks, case) -> None:
    stages, pipelines, shard_size, chunks, schedule = CASES[case]
    rows = pipelines_of(ranks, case)
    assert [len(row) for row in rows] == [stages] * (pipelines * shard_size)
    for row in rows:
        found = grid([instructions(one["words"]) for one in row])
        print(found)
        assert found == expected_grid(schedule(stages, MICROBATCHES, chunks))


@case
def test_topology(ranks, case) -> None:
    stages, pipelines, shard_size, chunks, _ = CASES[case]
    for number, rank in enumerate(ranks):
        topology = rank["cases"][case]["iterations"][0]["topology"]
        assert topology["rank"] == number
        sizes = (topology["stages"], topology["pipelines"], topology["shard_size"], topology["chunks"])
        assert sizes == (stages, pipelines, shard_size, chunks)
        assert topology["framework"] == f"megatron-core {rank['version']}"


@pytest.mark.parametrize(
    ("case", "axis"), [("PP2xTP2", "tensor"), ("PP2xCP2", "context"), ("PP2xEP2", "expert"), ("PP2xDP2", None)]
)
def test_ranks_that_exchange_data_within_instructions_are_named_by_their_axis(ranks, case, axis) -> None:
    for number, rank in enumerate(ranks):
        neighbours = [number - number % 2, number - number % 2 + 1]
        axes = rank["cases"][case]["iterations"][0]["topology"]["axes"]
        assert axes == ([[axis, neighbours]] if axis else [])


def transfers(word: str, stage: int) -> list[tuple[str, tuple[int, int, str]]]:
    """Return direction and (sender, receiver, tag) of every transfer in a word."""
    found = []
    for text in word.rpartition(":")[2].split("+"):
        if "-" in text:
            direction, tag, arrow, peer = re.fullmatch(r"(\w+)-(\w+)([<>])(\d+)", text).groups()
            ends = (stage, int(peer)) if arrow == ">" else (int(peer), stage)
            found.append((direction, (*ends, tag)))
    return found


@case
def test_every_send_has_its_receive_and_every_receive_is_waited_for(ranks, case) -> None:
    for row in pipelines_of(ranks, case):
        sent, received, awaited = Counter(), Counter(), Counter()
        for stage, iteration in enumerate(row):
            for word in iteration["words"]:
                for direction, one in transfers(word, stage):
                    if word.startswith("wait:"):
                        awaited[one] += direction == "receive"
                    else:
                        (sent if direction == "send" else received)[one] += 1
                        awaited[one] += direction == "receive" and not word.startswith("post:")
        assert sent == received == awaited
        assert bool(sent) == (len(row) > 1)


def test_one_exchange_carries_both_ways_without_overlap_and_none_with_it(ranks) -> None:
    joint = "send-gradient>0+receive-activation<0+send-activation>2+receive-gradient<2"
    without, with_overlap = (
        ranks[1]["cases"][name]["iterations"][0]["words"]
        for name in ("interleaved PP4xVP2", "interleaved PP4xVP2, overlap")
    )
    assert joint in without
    assert not any(word.startswith(("post:", "wait:")) for word in without)
    assert joint not in with_overlap
    assert "post:receive-activation<0+send-activation>2" in with_overlap
    assert "wait:receive-activation<0" in with_overlap


@case
def test_gradient_reduction_is_reported_once_and_last(ranks, case) -> None:
    for rank in ranks:
        words = rank["cases"][case]["iterations"][0]["words"]
        assert words.count("reduce") == 1
        assert words[-1] == "reduce"
        assert rank["cases"][case]["finalize is back"]


@case
def test_forward_only_passes_are_no_training(ranks, case) -> None:
    for rank in ranks:
        training, *evaluation = rank["cases"][case]["iterations"]
        assert training["training"]
        assert training["microbatches"] == MICROBATCHES
        assert len(evaluation) == (0 if "warm-up" in case else 1)
        for iteration in evaluation:
            assert not iteration["training"]
            assert {word[0] for word in instructions(iteration["words"])} == {"F"}


@case
def test_gradients_are_bit_identical_with_and_without(ranks, case) -> None:
    for rank in ranks:
        assert rank["cases"][case]["gradients with"] == rank["cases"][case]["gradients without"]


def test_checkpoints_are_told_of(ranks) -> None:
    for rank in ranks:
        assert rank["checkpoints"] == [["saved", "checkpoints"], ["loaded", "checkpoints"]]


@pytest.mark.parametrize("mode", REFUSED)
def test_mode_that_hides_the_instructions_is_refused_by_its_flag(ranks, mode, record_property) -> None:
    lines = [rank["refused"].get(mode) for rank in ranks]
    if lines[0] is None:
        pytest.skip(f"{mode}: a release that has no such mode")
    record_property("refused", lines[0].splitlines()[0])
    assert all(REFUSED[mode] in line for line in lines)


def test_per_layer_graphs_and_process_groups_of_parallel_state_handed_in(ranks) -> None:
    for rank in ranks:
        assert rank["per-layer graphs"] is None
        assert rank.get("their groups") is None
        assert rank["runs again"] == 1 + ("their groups" in rank)


def test_on_unsupported_warn_trains_on_without_hooks(ranks) -> None:
    for rank in ranks:
        assert (rank["unpatched under warn"], rank["told so"]) == ([], True)


def test_uninstalling_leaves_megatron_as_it_was(ranks) -> None:
    for rank in ranks:
        assert rank["originals are back"], "installed before Megatron was imported"
        assert rank["changed after uninstall"] == []
        assert rank["events after uninstall"] == []
