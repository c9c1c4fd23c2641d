"""One keeper per GPU, as far as this host's files can say."""

import os
import stat
import threading
import time
from pathlib import Path

import pytest

from perseus_ds.device import exclusive
from perseus_ds.device.exclusive import claim
from perseus_ds.messages import PerseusError


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Claims are made where other tests make none, and are not waited for."""
    monkeypatch.setenv("PERSEUS_DS_SIMULATOR", str(tmp_path))
    monkeypatch.setattr(exclusive, "_PATIENCE_S", 0.2)
    return tmp_path


def test_a_second_claim_is_refused_with_the_holders_number(place):
    held = claim("GPU-1")
    assert (place / "perseus-ds-GPU-1.lock").read_text().strip() == str(os.getpid())
    begin_s = time.monotonic()
    with pytest.raises(PerseusError, match=rf"GPU-1: .*process {os.getpid()}\).*\[gpu-taken\]"):
        claim("GPU-1")
    assert 0.15 < time.monotonic() - begin_s < 5.0
    other = claim("GPU-2")
    os.close(held)
    again = claim("GPU-1")
    os.close(again)
    os.close(other)


def test_a_holder_that_is_about_to_end_is_waited_for(monkeypatch):
    monkeypatch.setattr(exclusive, "_PATIENCE_S", 3.0)
    held = claim("GPU-1")
    threading.Timer(0.2, os.close, [held]).start()
    os.close(claim("GPU-1"))


def test_a_holder_that_left_no_number_is_unknown(place):
    held = claim("GPU-1")
    os.truncate(place / "perseus-ds-GPU-1.lock", 0)
    with pytest.raises(PerseusError, match=r"process unknown"):
        claim("GPU-1")
    os.close(held)


def test_where_no_file_can_be_made_nothing_is_prevented(place, monkeypatch):
    monkeypatch.setenv("PERSEUS_DS_SIMULATOR", str(place / "nowhere"))
    assert claim("GPU-1") is None


def test_a_file_system_without_locks_prevents_nothing(place, monkeypatch):
    def no_locks(*_):
        raise OSError("no locks here")

    monkeypatch.setattr(exclusive.fcntl, "flock", no_locks)
    assert claim("GPU-1") is None
    lock = place / "perseus-ds-GPU-1.lock"
    assert lock.exists()
    assert lock not in [file.resolve() for file in Path("/proc/self/fd").iterdir()]


def test_a_link_that_somebody_put_there_is_not_followed(place):
    victim = place / "victim"
    victim.write_text("precious")
    (place / "perseus-ds-GPU-1.lock").symlink_to(victim)
    assert claim("GPU-1") is None
    assert victim.read_text() == "precious"


def test_a_child_does_not_inherit_the_claim():
    held = claim("GPU-1")
    assert not os.get_inheritable(held)
    os.close(held)


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A directory for temporary files that other users write into, and a home of our own."""
    monkeypatch.delenv("PERSEUS_DS_SIMULATOR")
    monkeypatch.setattr(exclusive.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / f"perseus-ds-{os.getuid()}"


def test_claims_lie_where_only_their_user_can_write(shared):
    os.close(claim("GPU-1"))
    assert stat.S_IMODE(shared.stat().st_mode) == 0o700
    assert [file.name for file in shared.iterdir()] == ["perseus-ds-GPU-1.lock"]


@pytest.mark.parametrize("made", ["link", "open to others", "file"])
def test_a_directory_that_somebody_else_made_first_is_passed_by(shared, made):
    if made == "link":
        (shared.parent / "theirs").mkdir()
        shared.symlink_to(shared.parent / "theirs")
    elif made == "file":
        shared.write_text("")
    else:
        shared.mkdir()
        shared.chmod(0o777)
    held = claim("GPU-1")
    assert (shared.parent / "home" / ".cache" / "perseus-ds" / "perseus-ds-GPU-1.lock").is_file()
    with pytest.raises(PerseusError, match="gpu-taken"):
        claim("GPU-1")
    os.close(held)


def test_without_a_directory_of_its_own_nothing_is_prevented(shared, monkeypatch):
    shared.write_text("")
    monkeypatch.setenv("HOME", "/proc/nowhere")
    assert claim("GPU-1") is None
