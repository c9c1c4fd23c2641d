"""One clock keeper per GPU: two would override each other, and count the same energy twice."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from perseus_ds.messages import PerseusError

__all__ = ["claim"]

_PATIENCE_S = 3.0  # a keeper whose trainer has just ended may still be resetting the clocks
_RETRY_PAUSE_S = 0.05


def claim(uuid: str) -> int | None:
    """Claim a GPU for this process. The kernel releases the claim when the process ends, for any reason.

    Args:
        uuid: The driver's name of the GPU.

    Returns:
        Descriptor that holds the claim; None without lock files: then nothing is prevented.

    Raises:
        PerseusError: Another process of this host holds it.
    """
    directory = _directory()
    if directory is None:
        return None
    try:
        lock = os.open(
            directory / f"perseus-ds-{uuid}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
    except OSError:
        return None
    give_up_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if time.monotonic() < give_up_s:
                time.sleep(_RETRY_PAUSE_S)
                continue
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise PerseusError("gpu-taken", uuid=uuid, pid=holder) from error
        except OSError:  # a file system without locks
            os.close(lock)
            return None
    with suppress(OSError):  # a full disk: the claim holds without the number
        os.pwrite(lock, f"{os.getpid():<31d}\n".encode(), 0)
    return lock


def _directory() -> Path | None:
    """Return where this user's claims lie: a directory in which nobody else can write, None without any."""
    # Simulated GPUs of different runs may have one name, but not one directory.
    if simulated := os.environ.get("PERSEUS_DS_SIMULATOR"):
        return Path(simulated)
    shared = Path(tempfile.gettempdir()) / f"perseus-ds-{os.getuid()}"
    for own in (shared, Path.home() / ".cache" / "perseus-ds"):  # somebody else may have made the first
        with suppress(OSError):
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = own.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
                return own
    return None
