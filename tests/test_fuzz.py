"""Whatever is in a file or a message: one line for the user, or a value that makes sense; no traceback, no NaN.

``PERSEUS_DS_FUZZ=20000 pytest tests/test_fuzz.py`` tries as many inputs for each.
"""

import json
import math
import os
import shutil
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_up_job import PROFILE, traces

from perseus_ds.cli import main
from perseus_ds.config import Config, load_config, parse_config
from perseus_ds.coordination.control import parse_control
from perseus_ds.coordination.orders import order_of
from perseus_ds.coordination.resume import Hardware, look_up, remember
from perseus_ds.coordination.wire import decode as decode_message
from perseus_ds.coordination.wire import encode as encode_message
from perseus_ds.device import calibration
from perseus_ds.device.lease import orphans
from perseus_ds.device.protocol import Request, decode, decode_order
from perseus_ds.frontier.power_signal import read_signal
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.events import Topology
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.cache import cache_path, load_profile, store_profile
from perseus_ds.profiling.table import CurveKey, ProfilePoint, make_profile, read_profile
from perseus_ds.rundir import RunDirectory

EXAMPLES = int(os.environ.get("PERSEUS_DS_FUZZ", "60"))
fuzzed = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))

ODD = st.sampled_from(
    [
        "",
        "nan",
        "inf",
        "-inf",
        "1e308",
        "-1",
        "0",
        "1e-320",
        "9" * 5000,
        "\0",
        "\ufeff",
        "٣",
        "1_0",
        "0x10",
        "é",
        "[" * 300,
    ]
)
NUMBERS = st.floats() | st.integers() | st.sampled_from([1e308, 5e-324, 10**400, -0.0])
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def damaged(data: st.DataObject, value):
    """A copy of a JSON value in which a few places are something else, are missing, or are there twice."""
    value = json.loads(json.dumps(value))
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key, at = None, None, value
        while isinstance(at, list | dict) and at and (holder is None or data.draw(st.integers(0, 3))):
            holder, key = at, data.draw(st.sampled_from(range(len(at)) if isinstance(at, list) else sorted(at)))
            at = holder[key]
        if holder is None:
            return data.draw(JSON)
        match data.draw(st.sampled_from(["other", "missing", "twice"])):
            case "missing":
                del holder[key]
            case "twice" if isinstance(holder, list):
                holder.append(holder[key])
            case _:
                holder[key] = data.draw(JSON)
    return value


def changed(data: st.DataObject, text: bytes) -> bytes:
    """Bytes of which a few are others, are missing, or are more."""
    found = bytearray(text)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(found)))
        found[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3) | ODD.map(str.encode))
    return bytes(found)


def understood(read, file: Path):
    """What a file holds; None if it was refused in one line."""
    try:
        return read(file)
    except PerseusError as error:
        if not is_one_line(error):
            raise
    return None


def is_one_line(error: PerseusError) -> bool:
    return "\n" not in str(error) and str(error).endswith("]") and len(str(error)) < 2000


YAML = b"""run_dir: runs/x
max_slowdown: 1.05
objective: {slowdown: 1.1}
device: {max_mhz: 1200, restore_mhz: 900}
profiling: {cache_dir: /tmp/x}
straggler: {onset_iterations: 2}
rejoin: {attempts: 3}
simulator: {gpu: a100, profile: gpt3-175b-a100-sxm}
"""


@fuzzed
@given(st.data())
def test_a_configuration_is_understood_or_refused_in_one_line(tmp_path, data):
    file = tmp_path / "perseus.yaml"
    file.write_bytes(changed(data, YAML))
    config = understood(load_config, file)
    assert config is None or math.isfinite(config.max_slowdown)


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(
            ["a0: &a0 [x]", *(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, 12)), "run_dir: *a11"]
        ),
        "run_dir: &a [*a]",
        "run_dir: [x]\n<<: *a",
        "run_dir: &a {b: *a}",
        "objective: " + "{a: " * 500 + "1" + "}" * 500,
        "? [a, b]\n: 1",
        "1: 2",
        "run_dir: !!python/object/apply:os.system [true]",
        "run_dir: 0b" + "1" * 20_000,
    ],
)
def test_yaml_made_to_hurt_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "perseus.yaml").write_text(text)
    with pytest.raises(PerseusError) as refused:
        load_config(tmp_path / "perseus.yaml")
    assert is_one_line(refused.value)


SECTION = {"run_dir": "runs/x", "max_slowdown": 1.05, "objective": {"slowdown": 1.1}, "device": {"max_mhz": 1200}}


@fuzzed
@given(st.data())
def test_a_section_of_deepspeed_s_json_is_understood_or_refused_in_one_line(data):
    config = understood(lambda section: parse_config(section, "ds.json"), damaged(data, SECTION))
    assert config is None or math.isfinite(config.max_slowdown)


CSV = b"stage,instruction,frequency,time,energy\n" + b"".join(
    b"%d,%s,%d,0.%d,9.5\n" % (stage, kind, mhz, stage + 1)
    for stage in (0, 1)
    for kind in (b"forward", b"backward")
    for mhz in (1400, 1000)
)


@fuzzed
@given(st.data())
def test_a_profile_is_understood_or_refused_in_one_line(tmp_path, data):
    file = tmp_path / "profile.csv"
    file.write_bytes(changed(data, CSV))
    profile = understood(read_profile, file)
    for points in profile.curves.values() if profile else ():
        assert all(math.isfinite(value) for point in points for value in point)
        assert all(point.time_s > 0.0 and point.energy_j >= 0.0 for point in points)


@fuzzed
@given(st.data())
def test_a_power_signal_is_understood_or_refused_in_one_line(tmp_path, data):
    file = tmp_path / "signal.csv"
    file.write_bytes(changed(data, b"iterations,power\n20,75%\n30,12kW\n5,900\n"))
    for step in understood(read_signal, file) or ():
        power = step.power_w if step.share is None else step.share
        assert step.iterations >= 1
        assert 0.0 < power < math.inf


@fuzzed
@given(st.data())
def test_the_control_file_gives_orders_or_says_why_not(data):
    orders = b"straggler 1 1.25 by ops\nobjective power=12kW until 2030-01-01T00:00:00Z\nobjective slowdown=1.1\n"
    text = changed(data, orders).decode(errors="replace")
    wanted, _ = parse_control(text, 2, 1e9)
    assert all(math.isfinite(order.value) for order in wanted.values())


@fuzzed
@given(st.tuples(*[st.floats()] * 3))
def test_what_a_round_says_of_orders_is_an_order_or_none(floats):
    order_of(floats)


DEPENDS = {"model": "m", "gpu": "g"}


@pytest.fixture(scope="module")
def cached(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    points = [ProfilePoint(1400, 0.1, 30.0), ProfilePoint(1000, 0.12, 25.0)]
    profile = make_profile(
        {CurveKey(stage, kind): points for stage in (0, 1) for kind in (Kind.FORWARD, Kind.BACKWARD)}
    )
    assert store_profile(folder, DEPENDS, profile, 60.0, pytest.fail)
    return json.loads(cache_path(folder, DEPENDS).read_text())


@fuzzed
@given(st.data())
def test_a_cached_profile_is_whole_or_set_aside_with_one_line(tmp_path, cached, data):
    file = cache_path(tmp_path, DEPENDS)
    file.write_text(json.dumps(damaged(data, cached)))
    told = []
    found = load_profile(tmp_path, DEPENDS, told.append)
    assert (found is None) == (len(told) == 1)
    assert all("\n" not in line for line in told)
    if found is not None:
        profile, blocking_power_w = found
        assert math.isfinite(blocking_power_w)
        assert all(math.isfinite(value) for points in profile.curves.values() for point in points for value in point)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory) -> tuple[Path, Config]:
    folder = tmp_path_factory.mktemp("earlier")
    directory, config = RunDirectory(folder), Config(run_dir=folder)
    remember(config, directory, 0, DEPENDS, PROFILE, 60.0)
    directory.write_json("trace.json", [trace.to_json() for trace in traces()])
    directory.write_json("summary.json", {"baseline": {"iteration_time_s": 1.6, "energy_j": 500.0}})
    assert directory.flush()
    return folder, config


@fuzzed
@given(st.data())
def test_what_an_earlier_run_left_is_resumed_from_or_measured_anew(tmp_path, earlier, data):
    folder, config = earlier
    name = data.draw(st.sampled_from([path.name for path in sorted(folder.glob("*.json"))]))
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    shutil.copytree(folder, tmp_path / "run")
    (tmp_path / "run" / name).write_text(json.dumps(damaged(data, json.loads((folder / name).read_text()))))
    with suppress(PerseusError):
        (found,) = look_up(config, [tmp_path / "run"], [DEPENDS], [Hardware("g", "1", (1400, 1200, 1000, 800), 0.01)])
        for points in found.profile.curves.values() if found.profile else ():
            assert all(math.isfinite(value) for point in points for value in point)
        for value in (found.baseline or {}).values():
            assert 0.0 < value < math.inf
        for trace in found.traces:
            assert all(timed.begin_s <= timed.end_s < math.inf for timed in trace.operations)


@fuzzed
@given(st.data())
def test_a_stored_calibration_is_whole_or_set_aside_with_one_line(tmp_path, data):
    file = tmp_path / "calibration.json"
    whole = calibration.Calibration((0.01, 0.02), 0.1, 0.1)
    file.write_text(json.dumps(damaged(data, whole._asdict())))
    told = []
    found = calibration._read(file, lambda code, line: told.append(line))
    assert (found is None) == (len(told) == 1)
    assert all("\n" not in line for line in told)
    if found is not None:
        assert 0.0 <= found.switch_latency_s < math.inf
        assert 0.0 <= found.counter_period_s < math.inf


@fuzzed
@given(st.data())
def test_a_lease_names_a_gpu_and_a_clock_or_none(tmp_path, data):
    (tmp_path / "1.lease").write_bytes(changed(data, json.dumps({"uuid": "GPU-1", "restore_mhz": 900}).encode()))
    for orphan in orphans(tmp_path):
        assert isinstance(orphan.uuid, str)
        assert orphan.restore_mhz is None or orphan.restore_mhz > 0


@pytest.fixture(scope="module")
def run_files(finished_run) -> dict[str, object]:
    names = [path.name for path in sorted(finished_run.glob("*.json"))]
    return {name: json.loads((finished_run / name).read_text()) for name in names}


@pytest.mark.launch
@settings(fuzzed, max_examples=max(10, EXAMPLES // 4))
@given(st.data())
def test_status_and_report_show_a_damaged_run_or_say_so_in_one_line(tmp_path, capsys, finished_run, run_files, data):
    run = tmp_path / "run"
    shutil.copytree(finished_run, run, dirs_exist_ok=True)
    name = data.draw(st.sampled_from([*sorted(run_files), "events.jsonl"]))
    if name == "events.jsonl":
        (run / name).write_bytes(changed(data, (finished_run / name).read_bytes()))
    else:
        (run / name).write_text(json.dumps(damaged(data, run_files[name])))
    for command in (["status", str(run), "--json"], ["report", str(run)]):
        assert main(command) in (0, 1, 2)
        output = capsys.readouterr()
        assert "Traceback" not in output.out + output.err


@fuzzed
@given(st.data())
def test_a_keeper_s_pipe_gives_orders_and_records_or_the_errors_that_its_ends_expect(data):
    with suppress(struct.error, ValueError):
        decode_order(changed(data, Request(900, 1.0).pack()))
    with suppress(struct.error, ValueError):
        list(decode(data.draw(st.binary(max_size=80))))


MESSAGE = encode_message([Topology(0, 2, 0, 1, 0, 2), {CurveKey(0, Kind.FORWARD): (1.5, "x")}, Path("a")])


@fuzzed
@given(st.data())
def test_a_message_of_the_bus_is_data_or_an_error(data):
    with suppress(ValueError):
        decode_message(changed(data, MESSAGE))
