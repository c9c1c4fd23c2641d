"""The profile CSV: what is read, and how wrong files are answered."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import perseus_ds.simulator
from perseus_ds.frontier import Problem, solve
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, ProfilePoint, make_profile, read_profile, split_chunks, write_profile

HEADER = "stage,instruction,frequency,time,energy\n"
GOOD = HEADER + "0,forward,1410,0.05,20\n0,forward,1200,0.06,18\n0,backward,1410,0.1,40\n0,backward,1200,0.12,36\n"


def read(tmp_path: Path, text: str):
    file = tmp_path / "profile.csv"
    file.write_text(text)
    return read_profile(file)


def test_a_written_profile_comes_back(tmp_path: Path) -> None:
    profile = make_profile(
        {
            CurveKey(0, kind): [ProfilePoint(1410, 0.1, 30.0, 0.001, 0.5), ProfilePoint(900, 0.2, 25.0)]
            for kind in (Kind.FORWARD, Kind.BACKWARD)
        }
    )
    write_profile(profile, tmp_path / "profile.csv")
    again = read_profile(tmp_path / "profile.csv")
    assert again.curves == profile.curves
    assert [file.name for file in tmp_path.iterdir()] == ["profile.csv"]


def test_shipped_profiles_are_complete() -> None:
    for file in (Path(perseus_ds.simulator.__file__).parent / "profiles").glob("*.csv"):
        profile = read_profile(file)
        assert (profile.stages, profile.chunks) == (8, 1)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(GOOD + "0,forward,1410,0.05,20\n", id="duplicate rows"),
        pytest.param(HEADER + "".join(sorted(GOOD.splitlines(keepends=True)[1:])), id="unsorted rows"),
        pytest.param(
            GOOD.replace("energy\n", "energy,gpu\n")
            .replace("0\n", "0,x\n")
            .replace("8\n", "8,x\n")
            .replace("6\n", "6,x\n"),
            id="extra columns",
        ),
        pytest.param(GOOD.replace("1410", "1410.0"), id="frequencies as floats"),
        pytest.param("\ufeff" + GOOD.replace("\n", "\r\n"), id="spreadsheet's line ends and mark"),
        pytest.param(GOOD.replace("20\n", "20\n\n , \n") + "\n\n", id="blank lines"),
    ],
)
def test_harmless_variants_read_the_same(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).curves == read(tmp_path, GOOD).curves


def test_the_least_and_the_largest_values_are_read(tmp_path: Path) -> None:
    curves = read(tmp_path, GOOD.replace("1200", "1").replace("1410", "100000").replace(",20", ",0")).curves
    assert [point[:3] for point in curves[CurveKey(0, Kind.FORWARD)]] == [(100_000, 0.05, 0.0), (1, 0.06, 18.0)]


def test_repeated_measurements_are_averaged_and_the_more_there_are_the_surer_they_get(tmp_path: Path) -> None:
    curves = read(tmp_path, GOOD + "0,forward,1410,0.07,24\n").curves
    assert curves[CurveKey(0, Kind.FORWARD)][0] == pytest.approx((1410, 0.06, 22, 0, 0))

    twice = [ProfilePoint(1410, 0.1, 20.0, 0.003, 3.0), ProfilePoint(1410, 0.2, 30.0, 0.004, 4.0)]
    profile = make_profile({CurveKey(0, kind): twice for kind in (Kind.FORWARD, Kind.BACKWARD)})
    assert profile.curves[CurveKey(0, Kind.FORWARD)] == (pytest.approx((1410, 0.15, 25.0, 0.0025, 2.5)),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the profile has no rows"),
        (HEADER, "the profile has no rows"),
        (GOOD.replace("energy", "joules"), "column 'energy' is missing"),
        (
            GOOD.replace("0.05", "nan"),
            "row 2, column 'time': 'nan' is not allowed; allowed: a finite number above 0",
        ),
        (GOOD.replace("0.05", "-0.05"), "row 2, column 'time'"),
        (GOOD.replace("0.05", "0"), "row 2, column 'time'"),
        (GOOD.replace("0.05,20", "0.05,inf"), "row 2, column 'energy'"),
        (
            GOOD.replace("0.05,20", "0.05,-1"),
            "row 2, column 'energy': '-1' is not allowed; allowed: a finite number from 0, at most 1e",
        ),
        (GOOD.replace("0.05,20", "0.05"), "row 2 has 4 cells; write at least 5"),
        (GOOD.replace("1200,0.06", "1200.5,0.06"), "row 3, column 'frequency'"),
        (GOOD.replace("1200,0.06", "0,0.06"), "row 3, column 'frequency'.* a whole number from 1 to 100000"),
        (GOOD.replace("1200,0.06", "100001,0.06"), "row 3, column 'frequency'"),
        (GOOD.replace("0,forward,1200", "x,forward,1200"), "row 3, column 'stage'"),
        (GOOD.replace("0,forward,1200", "10000,forward,1200"), "row 3, column 'stage'.* from 0 to 9999"),
        (GOOD.replace("0,forward,1200", "0,optimizer,1200"), "row 3, column 'instruction'.*one of forward, backward"),
        (GOOD.replace("backward", "forward"), "no rows for the backward of stage 0"),
        (GOOD.replace("0,backward", "2,backward"), "no rows for the backward of stage 0"),
    ],
)
def test_wrong_files_get_one_line_with_the_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PerseusError, match=message) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert "profile.csv" in str(caught.value)


def test_unreadable_files_say_why(tmp_path: Path) -> None:
    with pytest.raises(PerseusError, match="No such file"):
        read_profile(tmp_path / "missing.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(PerseusError, match="cannot read the profile"):
        read_profile(tmp_path / "binary.csv")


def test_a_million_rows_are_read_and_planned(tmp_path: Path) -> None:
    body = GOOD.removeprefix(HEADER)
    begin = time.perf_counter()
    profile = read(tmp_path, HEADER + body * 250_000)
    assert sum(map(len, profile.curves.values())) == 4
    assert solve(Problem(schedule_dag("1f1b", 1, 2), profile, 75.0)).breakpoints > 1
    assert time.perf_counter() - begin < 120


def test_chunks_share_a_stage_s_work(tmp_path: Path) -> None:
    assert split_chunks(read(tmp_path, GOOD), 1).curves == read(tmp_path, GOOD).curves
    profile = split_chunks(read(tmp_path, GOOD), 2)
    assert profile.chunks == 2
    assert profile.curve(CurveKey(0, Kind.FORWARD, 1))[0][:3] == (1410, 0.025, 10)
    with pytest.raises(PerseusError, match="chunks: 3 is not allowed; allowed: 2, as profiled"):
        split_chunks(profile, 3)
    for chunks in (0, -1):
        with pytest.raises(PerseusError, match=f"chunks: {chunks} is not allowed; allowed: whole numbers from 1"):
            split_chunks(profile, chunks)
