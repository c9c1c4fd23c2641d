"""The doctor's table, its JSON and its exit code."""

import json
import re

from perseus_ds.cli import main
from perseus_ds.commands import doctor
from perseus_ds.messages import PerseusError


def test_json_is_all_that_standard_output_holds_and_the_exit_code_tells(tmp_path, capsys):
    config = tmp_path / "perseus.yaml"
    config.write_text(f"run_dir: {tmp_path}/run\nsimulator: {{}}\n")
    code = main(["doctor", "--json", "--perseus", str(config)])
    report = json.loads(capsys.readouterr().out)
    assert (code, report["good"]) == (0, True), report
    checks = {finding["check"]: finding for finding in report["findings"]}
    assert re.search(r"deepspeed \S+: all \d+ patch targets found", checks["deepspeed"]["found"])
    assert "patch targets found" in checks["megatron-core"]["found"]
    assert not (tmp_path / "run").exists(), "the doctor only looks"


def test_the_table_has_a_remedy_for_what_is_bad(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "check_frameworks", lambda: iter(()))
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "✗" in text
    assert "1 of 5 checks are bad." in text


def test_a_wrong_configuration_is_exit_code_two(capsys):
    assert main(["doctor", "--perseus", "nowhere.yaml"]) == 2
    assert str(PerseusError("config-missing", file="nowhere.yaml")) in capsys.readouterr().err
