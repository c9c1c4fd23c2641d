"""GPUs that misbehave under real training: it goes on, its losses stay, one message names the cause."""

import json

import pytest
from by_hand import by_hand
from launching import DS_CONFIG, TRAIN, write_config

from perseus_ds.simulator.gpu import VirtualGpu
from perseus_ds.simulator.state import state_paths

pytestmark = [
    pytest.mark.launch,
    pytest.mark.against_the_clock("a rank that starts late on a busy host is given up on"),
]

STEPS = 24
SIMULATOR = {"stages": [7], "time_scale": 0.15, "switch_latency_s": 0.002, "counter_period_s": 0.02}


def train(directory, script=TRAIN, disable="0", **config):
    file = write_config(directory, **{"profiling": {"max_iterations": 4}, "simulator": SIMULATOR, **config})
    arguments = ["-m", "perseus_ds", "run", script, "--perseus", file, "--deepspeed_config", DS_CONFIG]
    arguments += ["--steps", STEPS, "--layers", 2, "--losses", directory / "losses.json"]
    return by_hand(1, *arguments, PERSEUS_DS_DISABLE=disable)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("undisturbed")
    done = train(directory, disable="1")
    assert done.returncode == 0, done.stdout
    return json.loads((directory / "losses.json").read_text())


@pytest.mark.parametrize(
    ("fault", "begin", "message"),
    [
        ("no_permission", 0, "CAP_SYS_ADMIN"),
        ("not_supported", 0, "no clock will be set"),
        ("gpu_is_lost", 5, "[gpu-lost]"),
        ("timeout", 5, "[driver-timeout]"),
        ("unknown", 5, "[driver-failed]"),
        ("counter_wrap", 5, "[counter-restarted]"),
    ],
)
def test_a_faulty_gpu_never_stops_the_training(undisturbed, tmp_path, fault, begin, message):
    faults = [{"stage": 0, "fault": fault, "begin_iteration": begin}]
    done = train(tmp_path, simulator={**SIMULATOR, "faults": faults})
    assert done.returncode == 0, done.stdout
    assert json.loads((tmp_path / "losses.json").read_text()) == undisturbed
    assert message in done.stdout
    assert "Traceback" not in done.stdout


def test_an_exception_in_the_users_script_gives_the_clocks_back(tmp_path):
    script = tmp_path / "crash.py"
    script.write_text(
        "import runpy, sys\n"
        "from deepspeed.runtime.pipe.engine import PipelineEngine\n"
        "original, batches = PipelineEngine.train_batch, []\n"
        "def train_batch(engine, *args, **kwargs):\n"
        "    batches.append(1)\n"
        "    if len(batches) == 15: raise RuntimeError('out of luck')\n"
        "    return original(engine, *args, **kwargs)\n"
        "PipelineEngine.train_batch = train_batch\n"
        f"sys.argv[0] = {str(TRAIN)!r}\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    done = train(tmp_path, script)
    assert done.returncode != 0
    assert "out of luck" in done.stdout
    (gpu,) = [VirtualGpu(path) for path in state_paths(tmp_path / "run" / "gpus")]
    assert gpu.requests()[0] > 10
    assert not gpu.is_locked()


def test_a_cache_that_cannot_be_written_costs_a_message_only(undisturbed, tmp_path):
    not_a_directory = tmp_path / "cache"
    not_a_directory.write_text("")
    done = train(tmp_path, profiling={"max_iterations": 4, "cache_dir": str(not_a_directory)})
    assert done.returncode == 0, done.stdout
    assert json.loads((tmp_path / "losses.json").read_text()) == undisturbed
    assert "[cache-" in done.stdout
