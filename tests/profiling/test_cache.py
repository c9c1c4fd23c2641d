"""The profile cache: what it keeps, and what it does with files it cannot trust."""

import json
import re
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from perseus_ds.pipeline.events import Topology
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.cache import cache_path, fingerprint, load_profile, store_profile
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint, make_profile

TOPOLOGY = Topology(
    rank=0,
    world_size=1,
    pipeline=0,
    pipelines=1,
    stage=0,
    stages=1,
    framework="deepspeed 0.19.8",
    fingerprint="gpt h512 mb4",
)
HERE = fingerprint(TOPOLOGY, "simulated A100", "550.54")


def measured() -> Profile:
    points = [ProfilePoint(1410, 0.05, 23.8, 1e-4, 0.2), ProfilePoint(1395, 0.0501, 23.5, 1e-4, 0.2)]
    return make_profile({CurveKey(0, kind): list(points) for kind in (Kind.FORWARD, Kind.BACKWARD)})


def test_a_stored_profile_comes_back_exactly(tmp_path: Path) -> None:
    assert store_profile(tmp_path / "new" / "cache", HERE, measured(), 83.64, pytest.fail)

    cached = load_profile(tmp_path / "new" / "cache", HERE, pytest.fail)

    assert cached is not None
    assert cached[0].curves == measured().curves
    assert cached[1] == 83.64
    assert [file.suffix for file in (tmp_path / "new" / "cache").iterdir()] == [".json"]


def test_what_requests_delay_and_the_power_limit_comes_back_too(tmp_path: Path) -> None:
    delays = {"request_stall_s": 0.001, "switch_tail_share": 0.05, "switch_tail_s": 0.15}
    limited = frozenset({CurveKey(0, Kind.BACKWARD)})
    profile = replace(measured(), **delays, switch_latency_s={1410: 0.02, 1395: 0.2}, limited=limited)
    store_profile(tmp_path, HERE, profile, 83.64, pytest.fail)

    cached = load_profile(tmp_path, HERE, pytest.fail)

    assert cached is not None
    assert replace(cached[0], source=profile.source) == profile


def test_curves_of_joint_instructions_and_chunks_come_back_too(tmp_path: Path) -> None:
    points = [ProfilePoint(1410, 0.05, 23.8, 1e-4, 0.2)]
    keys = [CurveKey(0, kind, chunk) for kind in (Kind.FORWARD, Kind.BACKWARD) for chunk in range(2)]
    profile = make_profile(dict.fromkeys([*keys, CurveKey(0, Kind.FORWARD_BACKWARD, 1, 0)], points))
    store_profile(tmp_path, HERE, profile, 83.64, pytest.fail)

    cached = load_profile(tmp_path, HERE, pytest.fail)

    assert cached is not None
    assert cached[0].curves == profile.curves


def test_an_empty_or_missing_cache_is_no_message(tmp_path: Path) -> None:
    assert load_profile(tmp_path, HERE, pytest.fail) is None
    assert load_profile(tmp_path / "missing", HERE, pytest.fail) is None


@pytest.mark.parametrize("name", ["model", "layout", "framework", "gpu", "driver", "perseus_ds", "torch"])
def test_whatever_a_profile_depends_on_changes_its_file(tmp_path: Path, name: str) -> None:
    store_profile(tmp_path, HERE, measured(), 83.64, pytest.fail)

    assert load_profile(tmp_path, {**HERE, name: "another"}, pytest.fail) is None


def test_a_fingerprint_in_another_order_is_the_same(tmp_path: Path) -> None:
    assert cache_path(tmp_path, dict(reversed(HERE.items()))) == cache_path(tmp_path, HERE)


def test_the_damaged_place_is_named(tmp_path: Path) -> None:
    store_profile(tmp_path, HERE, measured(), 83.64, pytest.fail)
    file = cache_path(tmp_path, HERE)
    whole, lines = file.read_text(), []
    for damaged in (whole.replace("0.0501", "-0.0501", 1), ""):
        file.write_text(damaged)
        load_profile(tmp_path, HERE, lines.append)

    assert "curves.0.points.1.1: Input should be greater than 0" in lines[0]
    assert "file: Invalid JSON" in lines[1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "\x00" * len(text),
        lambda text: text.replace("0.0501", "-0.0501"),
        lambda text: text.replace("0.0501", "NaN"),
        lambda text: text.replace("backward", "sideways"),
        lambda text: text.replace('"backward_chunk": -1', '"backward_chunk": -2'),
        lambda text: re.sub(r'"points": \[.*?\]\s*\]', '"points": []', text, count=1, flags=re.DOTALL),
        lambda text: json.dumps({"curves": []}),
    ],
)
def test_a_damaged_file_is_reported_set_aside_and_made_again(tmp_path: Path, damage) -> None:
    store_profile(tmp_path, HERE, measured(), 83.64, pytest.fail)
    file = cache_path(tmp_path, HERE)
    whole = file.read_text()
    assert damage(whole) != whole
    file.write_text(damage(whole))
    lines: list[str] = []

    assert load_profile(tmp_path, HERE, lines.append) is None

    assert len(lines) == 1
    assert str(file) in lines[0]
    assert "[cache-damaged]" in lines[0]
    assert not file.exists()
    assert file.with_name(f"{file.name}.damaged").exists()
    assert store_profile(tmp_path, HERE, measured(), 83.64, pytest.fail)
    assert load_profile(tmp_path, HERE, pytest.fail) is not None


def test_a_file_lacking_a_curve_is_damaged_too(tmp_path: Path) -> None:
    store_profile(tmp_path, HERE, measured(), 83.64, pytest.fail)
    file = cache_path(tmp_path, HERE)
    data = json.loads(file.read_text())
    del data["curves"][0]
    file.write_text(json.dumps(data))
    lines: list[str] = []

    assert load_profile(tmp_path, HERE, lines.append) is None
    assert "[cache-damaged]" in lines[0]


def test_a_profile_of_another_gpu_under_our_name_is_foreign(tmp_path: Path) -> None:
    elsewhere = {**HERE, "gpu": "simulated A40"}
    store_profile(tmp_path, elsewhere, measured(), 70.38, pytest.fail)
    cache_path(tmp_path, elsewhere).rename(cache_path(tmp_path, HERE))
    lines: list[str] = []

    assert load_profile(tmp_path, HERE, lines.append) is None

    assert len(lines) == 1
    assert "gpu is 'simulated A40', here it is 'simulated A100'" in lines[0]
    assert not cache_path(tmp_path, HERE).exists()


def test_a_disk_without_space_costs_one_message_and_leaves_nothing_behind(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    lines: list[str] = []
    try:
        # The kernel refuses to write beyond 100 bytes, as it would on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        stored = store_profile(tmp_path, HERE, measured(), 83.64, lines.append)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert not stored
    assert len(lines) == 1
    assert "[cache-not-written]" in lines[0]
    assert list(tmp_path.iterdir()) == []
    assert load_profile(tmp_path, HERE, pytest.fail) is None


def test_a_cache_that_cannot_be_read_costs_one_message_and_stays(tmp_path: Path) -> None:
    cache_path(tmp_path, HERE).mkdir()  # in the way
    lines: list[str] = []

    assert load_profile(tmp_path, HERE, lines.append) is None
    assert len(lines) == 1
    assert "[cache-unreadable]" in lines[0]
    assert cache_path(tmp_path, HERE).exists()


def test_a_cache_directory_that_cannot_be_made_costs_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    lines: list[str] = []

    assert not store_profile(tmp_path / "file", HERE, measured(), 83.64, lines.append)
    assert len(lines) == 1
    assert "[cache-not-written]" in lines[0]
