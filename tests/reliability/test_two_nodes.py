"""Two nodes: network namespaces of this host, joined by a virtual cable. Their own names are loopback addresses."""

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jobs
import launching
import psutil
import pytest

IP = shutil.which("ip", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
NETWORK, DOWN_S = "eth0", 20.0

pytestmark = [
    pytest.mark.launch,
    pytest.mark.against_the_clock("a busy host delays ranks as a fault does"),
    pytest.mark.quiet_host,
    pytest.mark.skipif(IP is None or os.geteuid() != 0, reason="network namespaces need root, and ip of iproute2"),
    pytest.mark.parametrize("framework", ["deepspeed", "megatron"], scope="module"),
]


def ip(*words: object, check: bool = True) -> None:
    subprocess.run([str(IP), *map(str, words)], check=check, capture_output=True)


class Nodes:
    """Two network namespaces, each with one end of a cable."""

    def __init__(self) -> None:
        self.names = [f"perseus-{os.getpid()}-{end}" for end in "ab"]
        self.addresses = [f"10.{77 + os.getpid() % 100}.{os.getpid() % 250}.{number}" for number in (1, 2)]
        ends = [f"v{os.getpid() % 100000}{end}" for end in "ab"]
        for name in self.names:
            ip("netns", "add", name)
            etc = Path("/etc/netns") / name
            etc.mkdir(parents=True)
            (etc / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {socket.gethostname()}\n")
        ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for name, address, end in zip(self.names, self.addresses, ends, strict=True):
            ip("link", "set", end, "netns", name)
            ip("-n", name, "link", "set", end, "name", NETWORK)
            ip("-n", name, "addr", "add", f"{address}/24", "dev", NETWORK)
            self.link(name, "up")
            ip("-n", name, "link", "set", "lo", "up")

    def link(self, name: str, state: str) -> None:
        ip("-n", name, "link", "set", NETWORK, state)

    def on(self, number: int, command: list[str]) -> list[str]:
        return [str(IP), "netns", "exec", self.names[number], *command]

    def close(self) -> None:
        for name in self.names:
            ip("netns", "del", name, check=False)
            shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)


@pytest.fixture(scope="module")
def nodes():
    made = Nodes()
    yield made
    made.close()


def deepspeed_command(number: int, address: str, port: int) -> list[str]:
    """As DeepSpeed's runners start it on every node."""
    world = base64.urlsafe_b64encode(json.dumps({"a": [0], "b": [0]}).encode()).decode()
    command = [sys.executable, "-m", "deepspeed.launcher.launch", f"--world_info={world}", f"--node_rank={number}"]
    return [*command, f"--master_addr={address}", f"--master_port={port}", "--module"]


def torchrun_command(number: int, address: str, port: int) -> list[str]:
    where = ["--node-rank", str(number), "--master-addr", address, "--master-port", str(port)]
    return ["torchrun", "--nnodes", "2", "--nproc-per-node", "1", *where, "-m"]


_run: dict[tuple[str, int], jobs.Job] = {}


@pytest.fixture
def job(framework, nodes, tmp_path_factory, attempt):
    """A job with a rank on each node, with a plan in force."""
    key = framework, attempt
    if key not in _run:
        directory = tmp_path_factory.mktemp(framework)
        config, port = jobs.prepare(directory, bus_timeout_s=DOWN_S / 2), launching.free_port()
        launcher = {"deepspeed": deepspeed_command, "megatron": torchrun_command}[framework]
        script = ["perseus_ds", "run", str(jobs.TRAINING), "--perseus", str(config), framework, str(directory)]
        commands = [
            nodes.on(
                number, ["env", f"TRAINING_NETWORK={NETWORK}", *launcher(number, nodes.addresses[0], port), *script]
            )
            for number in range(2)
        ]
        _run[key] = jobs.launched(directory, commands)
    return _run[key]


@pytest.fixture(scope="module", autouse=True)
def _end():
    yield
    for job in _run.values():
        job.kill()


@pytest.mark.fault(
    "Two nodes whose own names resolve to 127.0.1.1 (`torchrun`, the DeepSpeed launcher)",
    "the bus listens where the route to MASTER_ADDR begins; a plan comes in force",
)
def test_a_node_s_own_name_does_not_matter(job, recovered):
    plan = job.enforces()
    assert "connectFullMesh" not in job.log()
    recovered(f"{plan['time'] - job.begins():.0f} s after the first iteration, with profiling")


@pytest.mark.fault(
    "The link between two nodes is down for 20 s",
    "the training waits, as without Perseus; the plan stays in force, or comes back by itself",
)
def test_the_link_is_down(job, nodes, recovered):
    job.enforces()
    begin_s, (_, iteration) = time.time(), job.at()
    nodes.link(nodes.names[1], "down")
    time.sleep(DOWN_S)
    assert job.at()[1] <= iteration + 2, "the training waits"
    nodes.link(nodes.names[1], "up")
    up_s = time.time()
    job.until(lambda: job.at()[1] >= iteration + 3, "the training goes on")
    again_s = time.time()
    job.goes_on(10)
    back_s = job.sees("rejoined", begin_s)["time"] if job.events("paused", begin_s) else again_s
    assert job.log().count("[paused]") <= 1
    assert "[switched-off]" not in job.log()
    assert any(gpu.is_locked() for gpu in job.gpus())
    recovered(f"{max(back_s, again_s) - up_s:.0f} s, of which the training needed {again_s - up_s:.0f} s")


@pytest.mark.fault(
    "All processes of one node are killed",
    "the job ends as without Perseus; the other node's clocks are reset",
)
def test_a_node_is_killed(job, recovered):
    job.enforces()
    survivor, victim = job.processes
    begin_s = time.time()
    killed = [*victim.children(recursive=True), victim]
    for one in killed:
        one.send_signal(signal.SIGKILL)
    psutil.wait_procs(killed, 5.0)
    job.until(lambda: not jobs.is_alive(survivor), "the end of the other node", alive=False)
    took_s = time.time() - begin_s
    assert not [one for one in psutil.process_iter() if str(job.directory) in jobs.command(one)]
    mine = job.gpus()[0]
    job.until(lambda: not mine.is_locked(), "default clocks", alive=False)
    recovered(f"clocks reset and the job over after {took_s:.0f} s")
