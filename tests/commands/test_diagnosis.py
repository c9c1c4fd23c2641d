"""What the doctor finds besides GPUs: network and files."""

from pathlib import Path

from perseus_ds.commands.diagnosis import check_files, check_gloo


def found(findings) -> dict:
    return {finding.check: finding for finding in findings}


def test_gloo_connects_on_this_host():
    assert check_gloo().status == "good"


def test_a_run_directory_on_top_of_a_file_is_bad(tmp_path):
    from perseus_ds.config import Config

    (tmp_path / "file").write_text("")
    findings = found(check_files(Config(run_dir=tmp_path / "file" / "run")))
    assert findings["run directory"].status == "bad"


def test_a_run_directory_where_this_user_may_not_look_is_bad(tmp_path, monkeypatch):
    from perseus_ds.config import Config

    def exists(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", exists)
    finding = found(check_files(Config(run_dir=tmp_path / "run")))["run directory"]
    assert finding.status == "bad"
    assert "Permission denied" in finding.found
    assert "may write to" in finding.remedy
