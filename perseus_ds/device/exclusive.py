"""One clock keeper per GPU: two would overrule each other, and count the same energy twice."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from perseus_ds.messages import PerseusError

__all__ = ["claim"]

_PATIENCE_S = 3.0  # a keeper whose trainer has just ended may still be resetting the clocks
_RETRY_PAUSE_S = 0.05


def claim(uuid: str) -> int | None:
    """Claim a GPU for this process until it ends, however it ends: the kernel then gives the claim up.

    Args:
        uuid: The GPU, as NVML names it.

    Returns:
        Descriptor that holds the claim; None where lock files cannot be used: then nothing is prevented.

    Raises:
        PerseusError: Another process of this host holds it.
    """
    # Simulated GPUs of different runs may have one name, but not one directory.
    directory = os.environ.get("PERSEUS_DS_SIMULATOR") or tempfile.gettempdir()
    try:
        # A link that someone has put there is not followed, and nothing is truncated.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(Path(directory) / f"perseus-ds-{uuid}.lock", flags, 0o666)
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
