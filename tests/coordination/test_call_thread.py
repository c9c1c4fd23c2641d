"""One call after the other, off the caller's thread."""

import threading
import time

import pytest

from perseus_ds.coordination.call_thread import CallThread


def test_calls_are_made_in_order_on_a_thread_of_their_own():
    thread = CallThread("test-calls")
    made: list[int] = []
    futures = [thread.submit(lambda number=number: made.append(number) or number) for number in range(50)]
    assert [future.result(timeout=5) for future in futures] == made == list(range(50))
    assert thread.submit(lambda: threading.current_thread().name).result(timeout=5) == "test-calls"
    assert thread.submit(lambda: threading.current_thread().daemon).result(timeout=5)


def test_an_error_is_its_own_call_s_and_the_next_ones_are_made():
    thread = CallThread("test-calls")
    broken, whole = thread.submit(lambda: 1 / 0), thread.submit(lambda: 1)
    with pytest.raises(ZeroDivisionError):
        broken.result(timeout=5)
    assert whole.result(timeout=5) == 1


def test_closed_it_makes_what_was_submitted_and_nothing_after():
    thread = CallThread("test-calls")
    before = thread.submit(lambda: time.sleep(0.1))
    thread.close()
    after = thread.submit(lambda: None)
    thread.join(5.0)
    assert before.done()
    assert not after.done()


def test_a_call_that_hangs_is_not_waited_for_longer_than_said():
    thread, go_on = CallThread("test-calls"), threading.Event()
    thread.submit(go_on.wait)
    begin_s = time.monotonic()
    thread.join(0.1)
    assert 0.05 < time.monotonic() - begin_s < 2.0
    go_on.set()
