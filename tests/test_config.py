"""One line for every mistake in the YAML."""

import pytest

from perseus_ds.config import load_config
from perseus_ds.messages import PerseusError


@pytest.fixture
def write(tmp_path):
    def write(text: str):
        file = tmp_path / "perseus.yaml"
        file.write_text(text)
        return file

    return write


def test_two_lines_are_enough(write):
    config = load_config(write("run_dir: runs/mine\n"))
    assert config.mode == "enforce"
    assert config.simulator is None


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ("", "config-empty", ["perseus.yaml"]),
        ("- a list\n", "config-not-mapping", ["list"]),
        ("run_dir: [\n", "config-not-yaml", ["perseus.yaml"]),
        ("mode: observe\n", "config-bad-value", ["run_dir", "required"]),
        ("run_dir: r\nrun_dri: x\n", "config-unknown-key", ["run_dri", "run_dir"]),
        ("run_dir: r\ndevice: {bakend: nvml}\n", "config-unknown-key", ["device.bakend", "backend"]),
        ("run_dir: r\ndevice: {backend: amd}\n", "config-bad-value", ["device.backend", "amd", "zeusd"]),
        ("run_dir: r\nsimulator: {blocking_power_w: -5}\n", "config-bad-value", ["blocking_power_w", "-5", "greater"]),
        ("run_dir: r\nwarmup_iterations: many\n", "config-bad-value", ["warmup_iterations", "many", "integer"]),
        ("run_dir: r\nobjective: fast\n", "config-bad-value", ["objective", "fast"]),
        ("run_dir: r\nobjective: {slowdown: 0.9}\n", "config-bad-value", ["objective.slowdown", "0.9"]),
        ("run_dir: r\nobjective: {deadline_s: 2, power_cap_w: 9}\n", "config-bad-value", ["objective", "one of"]),
        (
            "run_dir: r\nsimulator: {throttle: [{stage: 0, begin_iteration: 1, end_iteration: 9, slow: 2}]}\n",
            "config-unknown-key",
            ["simulator.throttle.0.slow", "slowdown"],
        ),
    ],
)
def test_a_mistake_gives_one_line_with_file_key_and_what_is_allowed(write, text, code, named):
    with pytest.raises(PerseusError) as raised:
        load_config(write(text))
    line = str(raised.value)
    assert raised.value.code == code
    assert "\n" not in line
    for part in ["perseus.yaml", *named]:
        assert part in line


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(PerseusError, match=r"nowhere\.yaml"):
        load_config(tmp_path / "nowhere.yaml")
