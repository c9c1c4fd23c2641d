"""Clocks through a daemon that speaks zeusd's HTTP over a UNIX socket or TCP, and moves virtual GPUs."""

import http.server
import json
import socketserver
import threading
import time
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import pytest
from waiting import wait_for

from perseus_ds.config import DeviceConfig
from perseus_ds.device.clock_keeper import ClockKeeper
from perseus_ds.device.opening import open_gpu
from perseus_ds.messages import PerseusError


class Handler(http.server.BaseHTTPRequestHandler):
    """The routes of zeusd that set clocks."""

    def do_GET(self):
        self.server.log.append(self.path)
        if self.path != "/discover" or not self.server.discovers:
            return self.answer(404, "no such route")
        if isinstance(self.server.discovers, str):
            return self.answer(200, self.server.discovers)
        gpus = [
            {"id": number, "pci_address": gpu.constants.pci_bus_id.decode()[4:].lower()}
            for number, gpu in self.server.gpus.items()
        ]
        return self.answer(200, json.dumps({"gpus": gpus, "auth_required": bool(self.server.token)}))

    def do_POST(self):
        self.server.log.append(self.path)
        route, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if self.server.token and self.headers["Authorization"] != f"Bearer {self.server.token}":
            return self.answer(401, "invalid token")
        if query["block"] != ["true"]:
            return self.answer(400, "this daemon wants to be waited for")
        gpu = self.server.gpus.get(int(query["gpu_ids"][0]))
        if gpu is None:
            return self.answer(400, '{"errors": {"gpu": "no such GPU"}}')
        if route == "/gpu/set_gpu_locked_clocks" and query["min_clock_mhz"] == query["max_clock_mhz"]:
            gpu.lock_clock(int(query["max_clock_mhz"][0]))
        elif route == "/gpu/reset_gpu_locked_clocks":
            gpu.reset_clocks()
        else:
            return self.answer(404, "no such route")
        return self.answer(200, "")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def address_string(self):
        return "client"

    def log_message(self, *_):
        pass


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@contextmanager
def zeusd(address, gpus, token=None, discovers=True):
    """Serve; ``gpus`` by the daemon's own numbers."""
    server = (
        http.server.ThreadingHTTPServer(address, Handler)
        if isinstance(address, tuple)
        else UnixServer(str(address), Handler)
    )
    server.gpus, server.token, server.discovers, server.log = gpus, token, discovers, []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_it_sets_and_resets_over_a_unix_socket(gpu, tmp_path):
    gpu.set_fault("no_permission")
    with zeusd(tmp_path / "z.sock", {0: gpu}):
        opened = open_gpu(0, "zeusd", zeusd_address=str(tmp_path / "z.sock")).gpu
        opened.lock_clock(900)
        wait_for(lambda: opened.sm_clock_mhz() == 900)
        opened.reset_clocks()
        assert not gpu.is_locked()


def test_it_sets_over_tcp_with_a_token(gpu, monkeypatch):
    with zeusd(("127.0.0.1", 0), {0: gpu}, token="s3cret") as server:
        address = f"127.0.0.1:{server.server_address[1]}"
        with pytest.raises(PerseusError, match=r"ZEUSD_TOKEN.*\[zeusd-token\]"):
            open_gpu(0, "zeusd", zeusd_address=address)
        monkeypatch.setenv("ZEUSD_TOKEN", "s3cret")
        open_gpu(0, "zeusd", zeusd_address=address).gpu.lock_clock(900)
        assert gpu.is_locked()


def test_the_gpu_is_found_by_its_pci_address_not_by_its_number(make_gpus, tmp_path):
    """In a container that sees two of four GPUs, NVML's number 1 is another GPU of the host than zeusd's."""
    first, second = make_gpus(2)
    with zeusd(tmp_path / "z.sock", {3: first, 1: second, 0: first}) as server:
        server.gpus = {2: second, 1: first}
        open_gpu(1, "zeusd", zeusd_address=str(tmp_path / "z.sock")).gpu.lock_clock(900)
        assert (first.is_locked(), second.is_locked()) == (False, True)
        server.gpus = {1: first}
        with pytest.raises(PerseusError, match=r"PCI address .*\[zeusd-unknown-gpu\]"):
            open_gpu(1, "zeusd", zeusd_address=str(tmp_path / "z.sock"))


def test_a_daemon_that_cannot_be_asked_for_its_gpus_is_taken_at_nvmls_number(make_gpus, tmp_path):
    gpus = make_gpus(2)
    with zeusd(tmp_path / "z.sock", dict(enumerate(gpus)), discovers=False):
        open_gpu(1, "zeusd", zeusd_address=str(tmp_path / "z.sock")).gpu.lock_clock(900)
    assert [gpu.is_locked() for gpu in gpus] == [False, True]


def test_auto_turns_to_it_when_nvml_refuses(gpu, tmp_path, monkeypatch):
    gpu.set_fault("no_permission")
    monkeypatch.setenv("ZEUSD_SOCK_PATH", str(tmp_path / "z.sock"))
    with zeusd(tmp_path / "z.sock", {0: gpu}):
        opened = open_gpu(0)
    assert opened.backend == "zeusd"
    assert str(tmp_path / "z.sock") in opened.reason


def test_a_refusal_names_route_and_status(gpu, tmp_path):
    with (
        zeusd(tmp_path / "z.sock", {}, discovers=False),
        pytest.raises(PerseusError, match=r"reset_gpu_locked_clocks \(HTTP 400\).*no such GPU.*\[zeusd-refused\]"),
    ):
        open_gpu(0, "zeusd", zeusd_address=str(tmp_path / "z.sock"))


def test_gone_in_mid_run_is_told_once_and_the_clocks_are_reset_when_it_is_back(gpu, tmp_path):
    path = tmp_path / "z.sock"
    gpu.set_fault("no_permission")
    with zeusd(path, {0: gpu}):
        keeper = ClockKeeper.start(device=DeviceConfig(backend="zeusd", zeusd_address=str(path)))
        keeper.set_mhz(900)
        wait_for(gpu.is_locked)
    path.unlink()
    notices = []
    for mhz in (1200, 900, 1200):
        keeper.set_mhz(mhz)
        time.sleep(0.15)
        notices += keeper.drain().notices
    assert len(notices) == 1
    assert "[zeusd-unreachable]" in notices[0]
    assert keeper.alive
    with zeusd(path, {0: gpu}):
        wait_for(lambda: gpu.sm_clock_mhz() == 1200)
        assert not keeper.close().notices
        assert not gpu.is_locked()


def test_gone_for_good_ends_in_a_message_not_in_a_hang(gpu, tmp_path):
    with zeusd(tmp_path / "z.sock", {0: gpu}):
        keeper = ClockKeeper.start(device=DeviceConfig(backend="zeusd", zeusd_address=str(tmp_path / "z.sock")))
    begin_s = time.monotonic()
    (notice,) = keeper.close().notices
    assert time.monotonic() - begin_s < 3.0
    assert "[keeper-reset]" in notice


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{}", '{"gpus": [{"pci_address": "x", "id": 0}]}', '{"gpus": [{"pci_address": "0:0:0.0"}]}', "[{}]"],
)
def test_a_daemon_that_talks_something_else_is_told_not_trusted(gpu, tmp_path, body):
    with (
        zeusd(tmp_path / "z.sock", {0: gpu}, discovers=body or "nonsense"),
        pytest.raises(PerseusError, match=r"/discover .*\[zeusd-refused\]"),
    ):
        open_gpu(0, "zeusd", zeusd_address=str(tmp_path / "z.sock"))


@pytest.mark.parametrize("address", ["z.sock", "./host:1.sock"])
def test_what_has_no_colon_or_a_slash_is_a_socket(gpu, tmp_path, monkeypatch, address):
    monkeypatch.chdir(tmp_path)
    with zeusd(address, {0: gpu}):
        assert open_gpu(0, "zeusd", zeusd_address=address).backend == "zeusd"
