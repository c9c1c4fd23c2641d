"""Releases that nobody has seen: copies of the newest with something changed are served, or refused with one line."""

import os
import shutil
from pathlib import Path

import framework_versions
import pytest
from by_hand import by_hand

pytestmark = pytest.mark.launch

HERE = Path(__file__).parent
CONFIG, STATE, SCHEDULES = "model_parallel_config.py", "parallel_state.py", "pipeline_parallel/schedules.py"
JOINT, TRANSFERS = "pipeline_parallel/combined_1f1b.py", "pipeline_parallel/p2p_communication.py"
EXPERTS = "def get_expert_model_parallel_group"
NO_PIPELINING = "def forward_backward_no_pipelining("

# File of megatron/core, what is replaced in it, and by what.
HARMLESS = (
    ("package_info.py", "MAJOR = 0", "MAJOR = 9"),
    (
        CONFIG,
        "    hybrid_context_parallel: bool",
        "    of_the_future: dict = None\n\n    hybrid_context_parallel: bool",
    ),
    (SCHEDULES, "micro_batch_size: int,", "micro_batch_size: int = 2,"),
    (SCHEDULES, "output_tensor_grad, config):", "output_tensor_grad, config, of_the_future=None):"),
    (JOINT, "combined_forward_backward_step", "one_step"),
    (STATE, f"{EXPERTS}(check_initialized=True):", f"{EXPERTS}():\n    check_initialized = True"),
)
REFUSED = {
    "pipeline_parallel.schedules.forward_backward_no_pipelining does not call 'forward_step' by its name": (
        (SCHEDULES, NO_PIPELINING, f"_step = forward_step\n\n\n{NO_PIPELINING}"),
        (SCHEDULES, "= forward_step(", "= _step("),
    ),
    "parallel_state.get_data_parallel_rank is missing": (
        (STATE, "def get_data_parallel_rank(", "def get_replica_rank("),
    ),
    "pipeline_parallel.p2p_communication.P2PCommunicator._communicate has no parameter 'wait_on_reqs'": (
        (TRANSFERS, "wait_on_reqs", "wait_for_requests"),
    ),
}


@pytest.fixture
def changed(tmp_path):
    """Make a copy of the newest release with some changes, and return what one rank's training with it says."""
    core = framework_versions.megatron_sources(framework_versions.MEGATRON[-1]) / "megatron" / "core"
    copy = tmp_path / "megatron" / "core"
    shutil.copytree(core, copy, copy_function=os.link)

    def run(changes, **more: str) -> str:
        for name, old, new in changes:
            text = (copy / name).read_text()
            assert old in text, f"{name} has no {old!r}"
            (copy / name).unlink()
            (copy / name).write_text(text.replace(old, new))
        path = os.pathsep.join(map(str, (tmp_path, HERE)))
        done = by_hand(1, HERE / "mutated_release.py", PYTHONPATH=path, STORE=str(tmp_path / "store"), **more)
        return done.stdout.splitlines()[-1]

    return run


def test_what_we_do_not_rely_on_may_change(changed) -> None:
    assert changed(HARMLESS, OMITS="micro_batch_size") == "served: F0 B0 F1 B1"


@pytest.mark.parametrize("lacks", REFUSED)
def test_what_we_rely_on_is_missed_in_one_line(changed, lacks) -> None:
    said = changed(REFUSED[lacks], OMITS="")
    assert said.startswith(f"refused: megatron-core 0.20.0 lacks what the hooks rely on: megatron.core.{lacks}")
