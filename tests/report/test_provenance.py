"""The versions behind a run."""

import platform
from importlib.metadata import PackageNotFoundError

import numpy as np

from perseus_ds.report import provenance


def test_versions_are_those_that_are_installed():
    versions = provenance.software_versions()
    assert versions["numpy"] == np.__version__
    assert versions["python"] == platform.python_version()


def test_a_package_that_is_not_installed_is_left_out(monkeypatch):
    def version(name):
        if name == "deepspeed":
            raise PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(provenance, "version", version)
    versions = provenance.software_versions()
    assert "deepspeed" not in versions
    assert versions["torch"] == "1.0"
