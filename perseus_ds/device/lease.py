"""Leases: what lets a service of the node reset clocks whose trainer and keeper were killed together.

A keeper holds a locked file in the service's directory for as long as it may set clocks. The kernel releases the lock
when the keeper ends, for any reason, also in another container. Then a file that is still there is an orphan.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perseus_ds.files import parse_json

__all__ = ["ALIVE_FILE", "Lease", "Orphan", "hold", "lease_directory", "orphans", "service_age_s"]

ALIVE_FILE = "alive"
"""Touched by the service with every look."""

_DIRECTORY = Path("/run/perseus-ds")
_SUFFIX = ".lease"
_LONGEST = 4096


@dataclass(frozen=True)
class Lease:
    """A held lease.

    Attributes:
        path: Its file.
        lock: Descriptor that holds the kernel's lock.
    """

    path: Path
    lock: int

    def end(self) -> None:
        """The clocks are reset: nobody else need do it."""
        with suppress(OSError):
            self.path.unlink()
        os.close(self.lock)


@dataclass(frozen=True)
class Orphan:
    """A lease whose holder is gone.

    Attributes:
        path: Its file.
        uuid: The driver's name of the GPU; empty: the file is no lease.
        restore_mhz: The operator's own lock, to be put back; None: there is none.
    """

    path: Path
    uuid: str
    restore_mhz: int | None


def lease_directory() -> Path:
    """Return the directory of this host's service; it exists where there is one."""
    # Simulated GPUs of different runs may have one name, but not one directory.
    if simulated := os.environ.get("PERSEUS_DS_SIMULATOR"):
        return Path(simulated) / "leases"
    return _DIRECTORY


def hold(uuid: str, restore_mhz: int | None) -> Lease | None:
    """Take a lease on a GPU.

    Args:
        uuid: The driver's name of the GPU.
        restore_mhz: The operator's own lock, to be put back; None: there is none.

    Returns:
        The lease; None without a service, or where this user may not write to its directory.
    """
    directory, name = lease_directory(), f"{os.getpid()}-{secrets.token_hex(8)}"
    draft = directory / f".{name}"
    try:
        lock = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(lock, json.dumps({"uuid": uuid, "restore_mhz": restore_mhz}).encode())
        path = directory / f"{name}{_SUFFIX}"
        draft.rename(path)  # only now: one that is not locked is an orphan
    except OSError:  # a full disk, a file system without locks
        os.close(lock)
        with suppress(OSError):
            draft.unlink()
        return None
    return Lease(path, lock)


def orphans(directory: Path) -> list[Orphan]:
    """Return the leases whose holders are gone, without those of GPUs that have a new holder."""
    found = list(_read(directory))
    held = {orphan.uuid for orphan, is_held in found if is_held}
    return [orphan for orphan, is_held in found if not is_held and orphan.uuid not in held]


def service_age_s(directory: Path) -> float | None:
    """Return the seconds since the service's latest look; None: there is no service."""
    try:
        return max(0.0, time.time() - (directory / ALIVE_FILE).stat().st_mtime)
    except OSError:
        return None


def _read(directory: Path) -> Iterator[tuple[Orphan, bool]]:
    """Yield every lease, and whether it is held."""
    for path in sorted(directory.glob(f"*{_SUFFIX}")):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # just ended, or a link
            continue
        try:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                yield _parsed(path, os.read(handle, _LONGEST)), _is_locked(handle)
        finally:
            os.close(handle)


def _is_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _parsed(path: Path, content: bytes) -> Orphan:
    try:
        told = parse_json(content.decode())
        uuid, restore_mhz = told["uuid"], told["restore_mhz"]
    except (ValueError, TypeError, KeyError):
        return Orphan(path, "", None)
    restores = isinstance(restore_mhz, int) and not isinstance(restore_mhz, bool) and restore_mhz > 0
    if not isinstance(uuid, str) or not (restores or restore_mhz is None):
        return Orphan(path, "", None)
    return Orphan(path, uuid, restore_mhz)
