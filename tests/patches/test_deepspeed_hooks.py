"""Real PipelineEngines of several DeepSpeed versions, two ranks over gloo: what the hooks leave behind."""

import framework_versions
import pytest
from hook_spy import expected_grid, grid, instructions, read

from perseus_ds.pipeline.schedules import one_f_one_b

pytestmark = pytest.mark.launch

# What each stage runs in a training iteration of four micro-batches.
STAGES = (
    "load0 F0 send-activation>1 load1 F1 receive-gradient<1 send-activation>1 B0 load2 F2 "
    "receive-gradient<1 send-activation>1 B1 load3 F3 receive-gradient<1 send-activation>1 B2 "
    "receive-gradient<1 B3 reduce reduce optimizer",
    "receive-activation<0 load0 F0 B0 send-gradient>0 receive-activation<0 load1 F1 B1 send-gradient>0 "
    "receive-activation<0 load2 F2 B2 send-gradient>0 receive-activation<0 load3 F3 B3 send-gradient>0 "
    "reduce reduce optimizer",
)


@pytest.fixture(scope="module", params=framework_versions.wanted(framework_versions.DEEPSPEED))
def ranks(request, tmp_path_factory) -> list[dict]:
    out = tmp_path_factory.mktemp("deepspeed")
    path = framework_versions.python_path("deepspeed", request.param)
    framework_versions.launch("deepspeed_ranks.py", 2, out, path)
    found = read(out)
    assert [rank["version"] for rank in found] == [request.param] * 2
    return found


def test_order_of_instructions_is_the_generator_s(ranks) -> None:
    found = grid([instructions(rank["iterations"][0]["words"]) for rank in ranks])
    print(found)
    assert found == expected_grid(one_f_one_b(2, 4))


def test_every_version_leaves_the_same_trace_in_every_iteration(ranks) -> None:
    for rank, expected in zip(ranks, STAGES, strict=True):
        assert [" ".join(one["words"]) for one in rank["iterations"] if one["training"]] == [expected] * 3


def test_evaluation_is_no_training_and_starts_no_count(ranks) -> None:
    for rank in ranks:
        assert [one["training"] for one in rank["iterations"]] == [True, False, True, True]
        assert instructions(rank["iterations"][1]["words"]) == ["F0", "F1", "F2", "F3"]
        assert all(one["ended"] and one["microbatches"] == 4 for one in rank["iterations"])


def test_topology(ranks) -> None:
    for stage, rank in enumerate(ranks):
        topology = rank["iterations"][0]["topology"]
        assert (topology["rank"], topology["stage"], topology["stages"]) == (stage, stage, 2)
        assert (topology["pipeline"], topology["pipelines"], topology["shard_rank"]) == (0, 1, 0)
        assert topology["framework"] == f"deepspeed {rank['version']}"
        assert topology["fingerprint"]


def test_losses_and_weights_are_bit_identical_with_and_without(ranks) -> None:
    for rank in ranks:
        assert rank["losses with"] == rank["losses without"]
        assert rank["weights with"] == rank["weights without"]


def test_engines_are_hooked_whatever_comes_first(ranks) -> None:
    for rank in ranks:
        assert rank["hooked by the import"], "installed before DeepSpeed was imported"
        assert rank["events before the first batch"] == [], "the engine was made before the second installation"


def test_uninstalling_leaves_deepspeed_as_it_was(ranks) -> None:
    for rank in ranks:
        assert rank["originals are back"]
        assert rank["untouched after uninstall"]
        assert rank["events after uninstall"] == []


def test_checkpoints_are_told_of(ranks) -> None:
    for rank in ranks:
        assert rank["checkpoints"] == [["saved", "checkpoints"], ["loaded", "checkpoints"]]


def test_perseus_section_of_the_deepspeed_configuration_is_handed_on(ranks) -> None:
    for rank in ranks:
        assert rank["sections of an engine made before"] == [[None, "DeepSpeed configuration"]]
        assert rank["sections of an engine made after"] == [[{"run_dir": "runs/here"}, "DeepSpeed configuration"]]


def test_dualpipev_s_two_chunks_and_joint_exchanges(ranks) -> None:
    if "dualpipev" not in ranks[0]:
        pytest.skip(f"DeepSpeed {ranks[0]['version']} has no DualPipeV")
    for rank in ranks:
        (iteration,) = rank["dualpipev"]
        assert iteration["topology"]["chunks"] == 2
        assert instructions(iteration["words"]) == rank["dualpipev expected"]
    joint = "send-activation>1+send-gradient>1+receive-activation<1+receive-gradient<1"
    assert joint in ranks[0]["dualpipev"][0]["words"]
