"""What need not be measured again."""

import json
from functools import partial

import numpy as np
import pytest
from made_up_job import DEPENDS, PROFILE, TOPOLOGY, first_book, make, traces

from perseus_ds.config import Config
from perseus_ds.coordination.phases import Resumable
from perseus_ds.coordination.resume import (
    Hardware,
    ResumeData,
    copy_resume_data,
    depends_on,
    group_pipelines,
    look_up,
    numbered,
    remember,
)
from perseus_ds.messages import PerseusError
from perseus_ds.profiling.table import write_profile
from perseus_ds.rundir import RunDirectory

ANOTHER = {"model": "another"}
BASELINE = {"iteration_time_s": 1.6, "energy_j": 500.0}
GPU = Hardware("A100", "550", (1400, 1200, 1000, 800), 0.01)


@pytest.fixture
def earlier(tmp_path):
    """The run directory of a job with two kinds of GPUs, where everything is known of both."""
    directory = RunDirectory(tmp_path)
    for number, depends in enumerate((DEPENDS, ANOTHER)):
        remember(Config(run_dir=tmp_path), directory, number, depends, PROFILE, 60.0 + number)
        directory.write_json(numbered("trace.json", number), [trace.to_json() for trace in traces(2 + number)])
    directory.write_json("summary.json", {"baseline": BASELINE})
    assert directory.flush()
    return tmp_path


def look(directory, *more, depends=(DEPENDS, ANOTHER), **settings) -> tuple[ResumeData, ...]:
    return look_up(Config(run_dir=directory, **settings), [directory, *more], depends, [GPU])


def test_pipelines_with_the_same_gpus_are_a_group():
    a, b = (Hardware(name, "550", (1400,), 0.01) for name in "AB")
    assert group_pipelines([a, a, b, b, a, a], pipelines=3) == (0, 1, 0)
    assert group_pipelines([a, b, b, a], pipelines=2) == (0, 1)
    mixed = [depends_on(Config(run_dir="unused"), TOPOLOGY, one)["gpu"] for one in ([a, a], [a, b], [b, a])]
    assert mixed == ["A", "A + B", "B + A"]


def test_what_a_run_leaves_is_found_by_the_next_unless_something_differs(tmp_path):
    config = Config(run_dir=tmp_path)
    directory = RunDirectory(tmp_path)
    first_book(make(tmp_path, directory))
    assert directory.flush()
    (tmp_path / "summary.json").write_text(json.dumps({"baseline": {"iteration_time_s": 1.6, "energy_j": 500.0}}))
    (found,) = look_up(config, [tmp_path], [DEPENDS], [])
    assert found.known is Resumable.ALL
    assert found.baseline == {"iteration_time_s": 1.6, "energy_j": 500.0}
    assert len(found.traces) == 2
    (tmp_path / "trace.json").write_text("{")
    assert look_up(config, [tmp_path], [DEPENDS], [])[0].known is Resumable.PROFILE
    assert look_up(config, [tmp_path], [{"model": "another"}], [])[0].known is Resumable.NOTHING
    anew = Config(run_dir=tmp_path, profiling={"reuse": False})
    assert look_up(anew, [tmp_path], [DEPENDS], [])[0].known is Resumable.NOTHING


def test_what_a_checkpoint_holds_is_found_where_the_run_directory_is_empty(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    first_book(make(tmp_path / "run", directory))
    directory.write_json("summary.json", {"baseline": {"iteration_time_s": 1.6, "energy_j": 500.0}})
    (tmp_path / "checkpoint").mkdir()
    for place in (tmp_path / "checkpoint", tmp_path / "msc:" / "bucket"):
        directory.later(partial(copy_resume_data, directory.path, place / "perseus_ds"))
    assert directory.flush()
    assert directory.failure is None
    again = Config(run_dir=tmp_path / "again")
    (found,) = look_up(again, [again.run_dir, tmp_path / "checkpoint" / "perseus_ds"], [DEPENDS], [])
    assert found.known is Resumable.ALL
    assert found.profile.curves == PROFILE.curves
    assert (found.traces, found.baseline["energy_j"]) == (traces(), 500.0)
    assert not (tmp_path / "msc:").exists(), "an object store's address is no place to write to"


def test_the_cache_directory_is_shared_between_runs(tmp_path):
    config = Config(run_dir=tmp_path / "one", profiling={"cache_dir": tmp_path / "cache"})
    directory = RunDirectory(tmp_path / "one")
    remember(config, directory, 0, DEPENDS, PROFILE, 60.0)
    assert directory.flush()
    (found,) = look_up(config, [tmp_path / "another"], [DEPENDS], [])
    assert found.known is Resumable.PROFILE
    assert found.blocking_power_w == 60.0


@pytest.mark.parametrize(
    ("found", "known"),
    [
        (ResumeData(), Resumable.NOTHING),
        (ResumeData(PROFILE), Resumable.PROFILE),
        (ResumeData(PROFILE, 60.0), Resumable.PROFILE),
        (ResumeData(PROFILE, None, traces()), Resumable.PROFILE),
        (ResumeData(PROFILE, 60.0, traces()), Resumable.ALL),
        (ResumeData(None, 60.0, traces()), Resumable.NOTHING),
    ],
)
def test_only_with_profile_blocking_power_and_traces_nothing_is_measured(found, known):
    assert found.known is known


def test_of_every_kind_of_gpu_its_own_files_are_found(earlier):
    for number, found in enumerate(look(earlier)):
        assert found.known is Resumable.ALL
        assert (found.blocking_power_w, found.traces) == (60.0 + number, traces(2 + number))
        assert found.baseline == BASELINE


@pytest.mark.parametrize("name", ["trace-2.json", "resume-2.json"])
def test_what_is_missing_of_one_kind_of_gpu_is_measured_of_all(earlier, name):
    (earlier / name).unlink()
    assert [(one.known, one.traces, one.blocking_power_w) for one in look(earlier)] == [
        (Resumable.PROFILE, (), 60.0),
        (Resumable.PROFILE, (), 61.0),
    ]
    assert look(earlier, depends=(DEPENDS, {"model": "a third"})) == (ResumeData(), ResumeData())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("resume.json", json.dumps(ANOTHER)),
        ("resume.json", "[]"),
        ("trace.json", "{"),
        ("trace.json", "[1]"),
        ("trace.json", '[{"stage": 0}]'),
        ("trace.json", "[" * 100_000),
        ("summary.json", "[]"),
        ("summary.json", None),
    ],
)
def test_damaged_files_leave_the_profile(earlier, name, content):
    if content is None:
        (earlier / name).unlink()
    else:
        (earlier / name).write_text(content)
    (found,) = look(earlier, depends=(DEPENDS,))
    assert (found.known, found.traces, found.baseline) == (Resumable.PROFILE, (), None)
    assert found.profile.curves == PROFILE.curves


def test_a_run_that_ended_before_its_summary_had_a_baseline_is_resumed_without(earlier):
    (earlier / "summary.json").write_text("{}")
    (found,) = look(earlier, depends=(DEPENDS,))
    assert (found.known, found.baseline) == (Resumable.ALL, None)


def test_the_run_directory_comes_before_the_checkpoint_and_that_before_the_cache(earlier, tmp_path_factory):
    others = [tmp_path_factory.mktemp(name) for name in ("checkpoint", "cache")]
    for power_w, folder in zip((70.0, 80.0), others, strict=True):
        directory = RunDirectory(folder)
        remember(Config(run_dir=folder), directory, 0, DEPENDS, PROFILE, power_w)
        assert directory.flush()
    checkpoint, cache = others
    settings = {"depends": (DEPENDS,), "profiling": {"cache_dir": cache}}
    assert look(earlier, checkpoint, **settings)[0].blocking_power_w == 60.0
    empty = tmp_path_factory.mktemp("empty")
    assert look(empty, checkpoint, **settings)[0].blocking_power_w == 70.0
    assert look(empty, **settings)[0].blocking_power_w == 80.0
    anew = {"profiling": {"cache_dir": cache, "reuse": False}}
    assert look(earlier, checkpoint, depends=(DEPENDS,), **anew)[0].blocking_power_w == 80.0


def test_a_profile_that_the_user_gives_is_everybody_s(earlier):
    write_profile(PROFILE, earlier / "given.csv")
    found = look(earlier, profiling={"profile": earlier / "given.csv"})
    assert [(one.known, one.profile.curves) for one in found] == [(Resumable.PROFILE, PROFILE.curves)] * 2


def test_a_given_profile_with_a_clock_that_some_gpu_lacks_is_refused_by_its_name(tmp_path):
    write_profile(PROFILE, tmp_path / "given.csv")
    config = Config(run_dir=tmp_path, profiling={"profile": tmp_path / "given.csv"})
    fewer = Hardware("A40", "550", (1400, 800), 0.01)
    with pytest.raises(PerseusError, match=r"1200 MHz is not a clock of this job's A40"):
        look_up(config, [tmp_path], [DEPENDS], [GPU, fewer])


def test_remembered_is_what_was_measured_in_the_run_directory_and_the_cache(tmp_path):
    config = Config(run_dir=tmp_path / "run", profiling={"cache_dir": tmp_path / "cache"})
    directory = RunDirectory(config.run_dir)
    remember(config, directory, 1, DEPENDS, PROFILE, 60.0)
    assert directory.flush()
    assert json.loads((config.run_dir / "resume-2.json").read_text()) == DEPENDS
    assert len(list(config.run_dir.glob("profile-*.json"))) == len(list((tmp_path / "cache").iterdir())) == 1


def test_a_profile_depends_on_all_drivers_and_on_the_simulator():
    drivers = [Hardware("A100", version, (1400,), 0.01) for version in ("560", "550", "560")]
    plain = depends_on(Config(run_dir="unused"), TOPOLOGY, drivers)
    assert (plain["gpu"], plain["driver"]) == ("A100", "550 + 560")
    assert "simulator" not in plain
    half, whole = (
        depends_on(Config(run_dir="unused", simulator={"time_scale": scale}), TOPOLOGY, drivers)["simulator"]
        for scale in (0.5, 1.0)
    )
    assert half != whole


def test_a_profile_depends_on_the_clocks_that_the_site_allows():
    free, limited = (
        depends_on(Config(run_dir="unused"), TOPOLOGY, [Hardware("A100", "550", clocks, 0.01)])
        for clocks in ((1410, 1200), (1200,))
    )
    locked = depends_on(
        Config(run_dir="unused", device={"restore_mhz": 1200}), TOPOLOGY, [Hardware("A100", "550", (1200,), 0.01)]
    )
    assert len({tuple(one.items()) for one in (free, limited, locked)}) == 3


def test_a_checkpoint_s_copy_holds_what_is_looked_up_and_no_more(earlier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint") / "perseus_ds"
    (earlier / "iterations.json").write_text("[]")
    copy_resume_data(earlier, folder)
    copy_resume_data(earlier, folder)  # the next checkpoint at the same place
    for copied, found in zip(look(folder), look(earlier), strict=True):
        assert (copied.profile.curves, copied.blocking_power_w) == (found.profile.curves, found.blocking_power_w)
        assert (copied.traces, copied.baseline) == (found.traces, found.baseline)
        assert copied.known is Resumable.ALL
    names = {file.name for file in folder.iterdir()}
    assert {"trace.json", "trace-2.json", "resume.json", "resume-2.json", "summary.json"} < names
    assert "iterations.json" not in names


@pytest.mark.parametrize(("number", "name"), [(0, "trace.json"), (1, "trace-2.json"), (2, "trace-3.json")])
def test_files_of_further_groups_are_numbered_from_two(number, name):
    assert numbered("trace.json", number) == name


def test_groups_are_numbered_as_they_come_and_models_are_compared_rank_by_rank():
    one, two = (Hardware(name, "550", (1400,), 0.01) for name in ("A", "B"))
    rows = [[two, one], [one, two], [two, one], [one, one]]
    assert group_pipelines(list(np.ravel(rows)), pipelines=4) == (0, 1, 0, 2)


def without_instructions(rows):
    return [{**row, "operations": []} for row in rows]


def without_a_transfer(rows):
    (first, *others) = rows
    lost = next(one for one in first["operations"] if one["transfers"])
    return [{**first, "operations": [one for one in first["operations"] if one is not lost]}, *others]


def without_a_time(rows):
    (first, *others) = rows
    first["operations"][0]["end_s"] = float("nan")
    return [first, *others]


def with_a_size_of_too_few(rows):
    (first, *others) = rows
    return [{**first, "sizes": [[1.0]]}, *others]


def test_a_trace_that_any_user_may_have_written_is_told_of_and_made_anew(earlier, log_lines):
    (earlier / "trace.json").chmod(0o666)
    assert look(earlier, depends=(DEPENDS,))[0].known is Resumable.PROFILE
    assert ["any user of this host may write it" in line for line in log_lines.messages] == [True]


@pytest.mark.parametrize("spoil", [without_instructions, without_a_transfer, without_a_time, with_a_size_of_too_few])
def test_a_trace_that_lost_something_is_told_of_and_made_anew(earlier, log_lines, spoil):
    file = earlier / "trace.json"
    file.write_text(json.dumps(spoil(json.loads(file.read_text()))))
    (found,) = look(earlier, depends=(DEPENDS,))
    assert (found.known, found.traces, found.baseline) == (Resumable.PROFILE, (), None)
    assert [str(file) in line and "[resume-damaged]" in line for line in log_lines.messages] == [True]
