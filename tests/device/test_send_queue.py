"""What is put in comes out, however slowly the trainer reads, and never makes anybody wait."""

import socket
import time

import pytest

from perseus_ds.device import send_queue
from perseus_ds.device.protocol import MESSAGE_BYTES, Sample, decode
from perseus_ds.device.send_queue import SendQueue


@pytest.fixture
def pipe():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


def samples(count: int) -> list[Sample]:
    return [Sample(float(number), 0.0, 0.0, 0, 0) for number in range(count)]


def received(ours: socket.socket) -> tuple[list, list[int]]:
    """Records, and the length of each message."""
    records, lengths = [], []
    while True:
        try:
            message = ours.recv(2 * MESSAGE_BYTES)
        except BlockingIOError:
            return records, lengths
        lengths.append(len(message))
        records += decode(message)


def test_many_records_travel_in_few_messages(pipe):
    ours, theirs = pipe
    queue = SendQueue(theirs)
    for sample in samples(2000):
        queue.put(sample)
    assert received(ours) == ([], [])
    queue.flush()
    records, lengths = received(ours)
    assert records == samples(2000)
    assert len(lengths) == 2
    assert MESSAGE_BYTES - 100 < lengths[0] <= MESSAGE_BYTES


def test_a_trainer_that_reads_late_gets_all_in_order(pipe):
    ours, theirs = pipe
    queue = SendQueue(theirs)
    for sample in samples(40_000):
        queue.put(sample)
    begin_s = time.monotonic()
    queue.flush()
    assert time.monotonic() - begin_s < 5.0
    records, _ = received(ours)
    assert 0 < len(records) < 40_000, "more than a socket takes"
    while len(records) < 40_000:
        queue.flush()
        records += received(ours)[0]
    assert records == samples(40_000)


def test_when_nobody_reads_for_very_long_the_oldest_are_lost(pipe, monkeypatch):
    ours, theirs = pipe
    monkeypatch.setattr(send_queue, "_BACKLOG", 10)
    queue = SendQueue(theirs)
    for sample in samples(25):
        queue.put(sample)
    queue.flush()
    assert received(ours)[0] == samples(25)[15:]


def test_a_cause_is_told_once(pipe):
    ours, theirs = pipe
    queue = SendQueue(theirs)
    for code, line in [("a", "first"), ("b", "second"), ("a", "third")]:
        queue.tell(code, line)
    queue.flush()
    assert received(ours)[0] == [{"notice": "first"}, {"notice": "second"}]


def test_what_a_trainer_that_is_gone_was_not_told_is_printed(pipe, capfd):
    ours, theirs = pipe
    queue = SendQueue(theirs)
    ours.close()
    queue.tell("a", "first")
    queue.tell("b", "second")
    queue.close()
    assert capfd.readouterr().err == "first\nsecond\n"


def test_what_was_told_is_not_printed(pipe, capfd):
    ours, theirs = pipe
    queue = SendQueue(theirs)
    queue.tell("a", "first")
    queue.close()
    assert received(ours)[0] == [{"notice": "first"}]
    assert capfd.readouterr().err == ""
