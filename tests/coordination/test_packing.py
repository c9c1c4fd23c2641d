"""Messages are packed on one thread: their memory stays with it, not with every thread that ever sent one."""

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.coordination.packing import pack, unpack
from perseus_ds.messages import PerseusError

MANY_THREADS = """
import sys, threading
from pathlib import Path
from perseus_ds.coordination.packing import pack, unpack
from perseus_ds.coordination.wire import decode, encode

plans = [[number % 200] * 2000 for number in range(400)]
one_thread = sys.argv[1] == "packed"
message = pack(plans) if one_thread else encode(plans)
over = threading.Event()

def receive(done):
    unpack(message) if one_thread else decode(message)
    done.set()
    over.wait()  # the threads of an old bus are still there when the new ones begin

def own_kib():
    return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0])

for number in range(13):
    if number == 1:
        before_kib = own_kib()
    done = threading.Event()
    threading.Thread(target=receive, args=(done,)).start()
    done.wait()
print("grown by", (own_kib() - before_kib) // 1024, "MiB")
over.set()
"""


def grown_mib(how: str) -> int:
    run = subprocess.run([sys.executable, "-c", MANY_THREADS, how], capture_output=True, text=True, check=True)
    return int(re.findall(r"grown by (\d+) MiB", run.stdout)[0])


@given(st.lists(st.text() | st.binary(max_size=5000)))
def test_a_value_comes_through(value):
    assert unpack(pack(value)) == value


@pytest.mark.parametrize("data", [b"", bytes(100), pack("a plan " * 100)[:-1]])
def test_what_is_damaged_is_said(data):
    with pytest.raises(PerseusError, match="broadcast-damaged"):
        unpack(data)


def test_a_flipped_bit_in_any_byte_is_noticed():
    sent = pack("a plan " * 10)
    for at in range(len(sent)):
        with pytest.raises(PerseusError, match="broadcast-damaged"):
            unpack(sent[:at] + bytes([sent[at] ^ 1]) + sent[at + 1 :])


def test_a_value_that_cannot_be_sent_is_said_to_the_sender():
    with pytest.raises(TypeError):
        pack(object())


def test_many_threads_keep_the_memory_of_one():
    assert grown_mib("packed") < grown_mib("on each thread") / 3
