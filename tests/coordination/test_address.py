"""The bus listens where the other nodes can reach it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import free_port

from perseus_ds.coordination.address import address_towards, seen_from_outside, towards_the_job

ROOT = Path(__file__).parents[2]


def test_the_route_to_a_host_begins_at_this_node_s_address():
    assert address_towards("127.0.0.1") == "127.0.0.1"
    assert address_towards("no-such-host.invalid") == ""


def test_the_master_s_address_shows_the_route_unless_the_user_names_an_interface(monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    assert towards_the_job() == ""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert towards_the_job() == "127.0.0.1"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")
    assert towards_the_job() == ""


def test_a_loopback_address_is_none_that_others_reach():
    assert seen_from_outside(["127.0.0.1", "", "127.0.1.1", "::1", "10.0.0.2", "10.0.0.1"]) == "10.0.0.2"
    assert seen_from_outside(["127.0.0.1", ""]) == ""


RANK = """
import json, os, sys
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg
from perseus_ds.coordination.bus import Bus
from perseus_ds.pipeline.events import Topology

rank = int(os.environ["RANK"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 2, rank == 0)
dist.init_process_group("fake", store=store, rank=rank, world_size=2)
bus = Bus(Topology(rank, 2, 0, 1, rank, 2), 20.0, lambda rows: rows[0], 1)
print(json.dumps([bus.layout.address, bus.agree(f"rank {rank}")]), flush=True)
"""


@pytest.fixture
def nodes() -> Iterator[list[str]]:
    """Two network namespaces with a cable between them; in both, the head's name is what Debian makes of it."""
    names = [f"perseus-{os.getpid()}-{number}" for number in (0, 1)]
    places = [Path("/etc/netns", name) for name in names]
    ip = shutil.which("ip")
    if ip is None or os.geteuid() != 0 or subprocess.run([ip, "netns", "add", names[0]], check=False).returncode:
        pytest.skip("no network namespaces here")
    try:
        subprocess.run([ip, "netns", "add", names[1]], check=True)
        cable = [f"p{os.getpid()}a", f"p{os.getpid()}b"]
        link = [ip, "link", "add", cable[0], "netns", names[0], "type", "veth", "peer", cable[1], "netns", names[1]]
        subprocess.run(link, check=True)
        for number, (name, end) in enumerate(zip(names, cable, strict=True)):
            for words in (f"addr add 10.77.0.{number + 1}/24 dev {end}", f"link set {end} up", "link set lo up"):
                subprocess.run([ip, "-n", name, *words.split()], check=True)
        for place, head in zip(places, ("127.0.1.1", "10.77.0.1"), strict=True):
            place.mkdir(parents=True)
            (place / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {os.uname().nodename}\n{head} head\n")
        yield names
    finally:
        for name, place in zip(names, places, strict=True):
            subprocess.run([ip, "netns", "delete", name], check=False)
            shutil.rmtree(place, ignore_errors=True)


def test_two_nodes_meet_though_the_head_s_name_is_a_loopback_address_on_the_head(nodes):
    port = str(free_port())
    ranks = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, "-c", RANK],
            env={**os.environ, "PYTHONPATH": str(ROOT), "MASTER_ADDR": "head", "MASTER_PORT": port, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, name in enumerate(nodes)
    ]
    told = [json.loads(rank.communicate(timeout=120)[0].splitlines()[-1]) for rank in ranks]
    assert told == [["10.77.0.1", ["rank 0", "rank 1"]], ["10.77.0.2", ["rank 0", "rank 1"]]]
