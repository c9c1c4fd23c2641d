"""Clocks through zeusd, the privileged daemon of the Zeus project, for users without the permission.

The routes are those of zeusd 0.5.0. zeusd resets nothing when its client ends, so the keeper does.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from contextlib import closing
from urllib.parse import urlencode

from perseus_ds.device.driver import DriverError, Gpu, NotPermitted
from perseus_ds.device.observe import ObservedGpu

__all__ = ["ZeusdGpu", "ask_zeusd"]

_TIMEOUT_S = 1.0


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT_S)
        self.sock.connect(self._path)


class ZeusdGpu(ObservedGpu):
    """Reads through the driver, which needs no privilege, and sets clocks through zeusd; see ``Gpu``."""

    sets_clocks = True

    def __init__(self, gpu: Gpu, address: str) -> None:
        """Prepare; nothing is sent yet.

        Args:
            gpu: The GPU through its driver.
            address: UNIX socket, or ``host:port``.
        """
        super().__init__(gpu)
        self._zeusd_index: int | None = None
        self._address = address

    def lock_clock(self, mhz: int) -> None:
        """See ``Gpu``."""
        self._post("set_gpu_locked_clocks", min_clock_mhz=mhz, max_clock_mhz=mhz)

    def reset_clocks(self) -> None:
        """See ``Gpu``."""
        self._post("reset_gpu_locked_clocks")

    def _index(self) -> int:
        """Return the GPU's number in zeusd, found by PCI address: in a container it differs from the driver's."""
        if self._zeusd_index is None:
            status, body = self._exchange("GET", "/discover")
            try:
                gpus = json.loads(body)["gpus"] if status == 200 else []
                places = {_pci_place(gpu["pci_address"]): int(gpu["id"]) for gpu in gpus if "pci_address" in gpu}
            except (ValueError, KeyError, TypeError) as error:
                raise self._refused("/discover", status, body) from error
            if places and _pci_place(self.pci_bus_id) not in places:
                raise DriverError("zeusd-unknown-gpu", address=self._address, pci_bus_id=self.pci_bus_id)
            self._zeusd_index = places.get(_pci_place(self.pci_bus_id), self.index)
        return self._zeusd_index

    def _refused(self, action: str, status: int, body: str) -> DriverError:
        return DriverError("zeusd-refused", address=self._address, action=action, status=status, detail=body)

    def _post(self, route: str, **query: int) -> None:
        """Send one command for this GPU and wait for its result."""
        parameters = urlencode({"gpu_ids": self._index(), **query, "block": "true"})
        status, body = self._exchange("POST", f"/gpu/{route}?{parameters}")
        if status == 401:
            raise NotPermitted("zeusd-token", address=self._address, detail=body)
        if status != 200:
            raise self._refused(route, status, body)

    def _exchange(self, method: str, path: str) -> tuple[int, str]:
        return ask_zeusd(self._address, method, path)


def ask_zeusd(address: str, method: str, path: str) -> tuple[int, str]:
    """Send one request over its own connection: the daemon may have restarted.

    Args:
        address: UNIX socket, or ``host:port``.
        method: HTTP method.
        path: Path and query.

    Returns:
        HTTP status and body.

    Raises:
        DriverError: zeusd does not answer.
    """
    token = os.environ.get("ZEUSD_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with closing(_connection(address)) as connection:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace").strip()
    except (http.client.HTTPException, OSError, ValueError) as error:
        raise DriverError("zeusd-unreachable", address=address, detail=error) from error


def _connection(address: str) -> http.client.HTTPConnection:
    if ":" in address and "/" not in address:
        return http.client.HTTPConnection(address, timeout=_TIMEOUT_S)
    return _UnixConnection(address)


def _pci_place(address: str) -> tuple[int, ...]:
    """Return domain, bus, device and function of a PCI address, with any number of leading zeros."""
    return tuple(int(part, 16) for part in address.replace(".", ":").split(":"))
