"""Read back from the kernel; the file is Linux's, one per thread."""

import threading
from pathlib import Path

import pytest

from perseus_ds.timer_slack import end_waits_on_time


def slack_ns() -> int:
    return int(Path(f"/proc/{threading.get_native_id()}/timerslack_ns").read_text())


@pytest.mark.skipif(not Path("/proc/self/timerslack_ns").exists(), reason="no such file on this kernel")
def test_waits_of_the_calling_thread_end_on_time_and_those_of_others_as_before() -> None:
    before_ns, found_ns = slack_ns(), []

    def follow() -> None:
        end_waits_on_time()
        found_ns.append(slack_ns())

    thread = threading.Thread(target=follow)
    thread.start()
    thread.join()
    assert found_ns == [1000]
    assert slack_ns() == before_ns > 1000
