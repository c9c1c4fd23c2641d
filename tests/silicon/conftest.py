"""Makes virtual labs, whose driver goes with the test."""

import itertools

import pytest

from perseus_ds.silicon.virtual_lab import VirtualLab
from perseus_ds.simulator.driver import uninstall_driver


@pytest.fixture
def make_lab(tmp_path):
    numbers = itertools.count()

    def make(kind=VirtualLab, **physics):
        directory = tmp_path / str(next(numbers))
        directory.mkdir()
        return kind(directory, **physics)

    yield make
    uninstall_driver()


@pytest.fixture(scope="module")
def virtual_lab(tmp_path_factory):
    """One lab for all experiments of a module."""
    yield VirtualLab(tmp_path_factory.mktemp("lab"))
    uninstall_driver()
