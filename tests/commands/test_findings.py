"""A finding says what is wrong and what to do, apart."""

from perseus_ds.commands.findings import refused
from perseus_ds.messages import PerseusError


def test_an_error_comes_apart_into_cause_and_remedy():
    finding = refused("GPU 0", PerseusError("nvml-mig", gpu="A100"))
    assert (finding.check, finding.status) == ("GPU 0", "bad")
    assert finding.found.startswith("A100: MIG slices")
    assert finding.remedy.startswith("switch MIG off")
    assert finding.remedy.endswith("[nvml-mig]")
