"""The report command."""

import shutil

import pytest

from perseus_ds.cli import main


@pytest.mark.launch
def test_it_prints_where_the_report_is_and_on_virtual_gpus_what_was_true(finished_run, tmp_path, capsys):
    copy = shutil.copytree(finished_run, tmp_path / "copy")
    (copy / "report.html").unlink()
    assert main(["report", str(copy)]) == 0
    path, *truth = capsys.readouterr().out.splitlines()
    assert path == str(copy / "report.html")
    assert [line.partition(":")[0] for line in truth[:2]] == ["energy saved", "slowdown"]
    assert all("true" in line for line in truth[:2])
    assert "<svg" in (copy / "report.html").read_text()
