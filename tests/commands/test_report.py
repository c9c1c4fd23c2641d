"""The report command."""

import shutil

import pytest

from perseus_ds.cli import main


@pytest.mark.launch
def test_it_prints_where_the_report_is(finished_run, tmp_path, capsys):
    copy = shutil.copytree(finished_run, tmp_path / "copy")
    (copy / "report.html").unlink()
    assert main(["report", str(copy)]) == 0
    assert capsys.readouterr().out.strip() == str(copy / "report.html")
    assert "<svg" in (copy / "report.html").read_text()
