"""One line for every mistake in the YAML."""

import os
from pathlib import Path

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
        ("run_dir: 2024-13-01\n", "config-not-yaml", ["month"]),
        ("run_dir: " + "[" * 10_000, "config-not-yaml", ["nested too deeply"]),
        ("mode: observe\n", "config-bad-value", ["run_dir", "required"]),
        ("run_dir: r\nrejoin: {attemps: 1}\n", "config-unknown-key", ["rejoin.attemps", "attempts, within_s"]),
        ("run_dir: r\nrun_dri: x\n", "config-unknown-key", ["run_dri", "run_dir"]),
        ("run_dir: r\ndevice: {bakend: nvml}\n", "config-unknown-key", ["device.bakend", "backend"]),
        ("run_dir: r\ndevice: {backend: amd}\n", "config-bad-value", ["device.backend", "amd", "zeusd"]),
        (
            "run_dir: r\ndevice: {max_mhz: 1200, restore_mhz: 1410}\n",
            "config-bad-value",
            ["restore_mhz", "max_mhz (1200)"],
        ),
        ("run_dir: r\nsimulator: {blocking_power_w: -5}\n", "config-bad-value", ["blocking_power_w", "-5", "greater"]),
        ("run_dir: r\nbus_timeout_s: .inf\n", "config-bad-value", ["bus_timeout_s", "inf", "finite"]),
        ("run_dir: r\nbus_timeout_s: 1.0e+11\n", "config-bad-value", ["bus_timeout_s", "86400"]),
        ("run_dir: r\nobjective: {deadline_s: .inf}\n", "config-bad-value", ["objective.deadline_s", "finite"]),
        (
            "run_dir: r\nprofiling: {max_instruction_slowdown: .nan}\n",
            "config-bad-value",
            ["finite"],
        ),
        ("run_dir: ~no-such-user/r\n", "config-bad-value", ["run_dir", "~no-such-user", "in full"]),
        ("run_dir: r\nwarmup_iterations: many\n", "config-bad-value", ["warmup_iterations", "many", "integer"]),
        ("run_dir: r\nobjective: fast\n", "config-bad-value", ["objective", "fast"]),
        ("run_dir: r\nobjective: {slowdown: 0.9}\n", "config-bad-value", ["objective.slowdown", "0.9"]),
        (
            "run_dir: r\nobjective: {deadline_s: 2, power_cap_w: 9}\n",
            "config-bad-value",
            ["objective", "give one of deadline_s, power_cap_w"],
        ),
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


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / "perseus.yaml")
    with pytest.raises(PerseusError, match=r"perseus\.yaml: .*not a regular file.*\[config-unreadable\]"):
        load_config(tmp_path / "perseus.yaml")


def test_text_that_is_not_utf8_is_named_by_its_line(tmp_path):
    file = tmp_path / "perseus.yaml"
    file.write_bytes("mode: observe\nrun_dir: größe\n".encode("latin-1"))
    with pytest.raises(PerseusError, match=r"perseus\.yaml: not valid YAML: line 2 is not UTF-8") as raised:
        load_config(file)
    assert raised.value.code == "config-not-yaml"


def test_every_path_may_begin_at_home(write, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    config = load_config(
        write(
            "run_dir: ~/run\n"
            "device: {zeusd_address: ~/zeusd.sock}\n"
            "profiling: {profile: ~/p.csv, cache_dir: '~'}\n"
            "report: {prometheus_textfile: ~/perseus.prom}\n"
            "simulator: {profile: ~/gpu.csv, pipeline_profiles: [~/a.csv, b~.csv]}\n"
        )
    )
    assert config.run_dir == Path("/home/me/run")
    assert config.device.zeusd_address == "/home/me/zeusd.sock"
    assert (config.profiling.profile, config.profiling.cache_dir) == (Path("/home/me/p.csv"), Path("/home/me"))
    assert config.report.prometheus_textfile == Path("/home/me/perseus.prom")
    assert config.simulator.profile == "/home/me/gpu.csv"
    assert config.simulator.pipeline_profiles == ("/home/me/a.csv", "b~.csv")


def test_a_renamed_key_is_still_read_with_one_warning(write, log_lines):
    config = load_config(write("run_dir: r\nprofiling: {max_slowdown: 1.5, reuse: false}\n"))
    assert config.profiling.max_instruction_slowdown == 1.5
    assert not config.profiling.reuse
    (line,) = log_lines.messages
    assert "profiling.max_slowdown is now profiling.max_instruction_slowdown" in line
    assert "perseus.yaml" in line


def test_a_key_given_under_both_names_is_a_mistake(write):
    with pytest.raises(PerseusError, match=r"profiling\.max_slowdown") as raised:
        load_config(write("run_dir: r\nprofiling: {max_slowdown: 1.5, max_instruction_slowdown: 1.6}\n"))
    assert raised.value.code == "config-unknown-key"
