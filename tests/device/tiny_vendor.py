"""A vendor of its own: the whole of what one must bring. Its GPUs live in a JSON file that processes share."""

import json
import os
import time
from pathlib import Path

from perseus_ds.device.driver import DriverTimeout, GpuLost, NoDriver, NotPermitted, NotSupported, Remark, Throttle
from perseus_ds.messages import PerseusError

VARIABLE = "TINY_VENDOR_GPUS"
ERRORS = {error.__name__: error for error in (DriverTimeout, GpuLost, NotPermitted, NotSupported)}


class TinyDriver:
    """Knows the GPUs of the file that the variable names."""

    name = "tiny"
    title = "Tiny SMI"

    def start(self) -> None:
        if VARIABLE not in os.environ:
            raise NoDriver(driver=self.title, detail=f"{VARIABLE} is not set")
        self.file = Path(os.environ[VARIABLE])

    def count(self) -> int:
        return len(json.loads(self.file.read_text()))

    def models(self) -> list[str]:
        return ["Tiny 1"] * self.count()

    def find(self, uuid: str) -> int:
        for index in range(self.count()):
            if f"tiny-{index}".startswith(uuid):
                return index
        raise PerseusError("gpu-not-found", gpu=uuid)

    def open(self, index: int) -> "TinyGpu":
        return TinyGpu(self.file, index)

    def close(self) -> None:
        del self.file


class TinyGpu:
    """Three clocks, 50 W at rest."""

    pci_bus_id = "0000:07:00.0"
    name = "Tiny 1"
    driver_version = "7"
    supported_clocks_mhz = (700, 600, 500)
    clock_step_mhz = 100
    sets_clocks = True

    def __init__(self, file: Path, index: int) -> None:
        self.file = file
        self.index = index
        self.uuid = f"tiny-{index}"

    def lock_clock(self, mhz: int) -> None:
        self._set(mhz)

    def reset_clocks(self) -> None:
        self._set(None)

    def _set(self, mhz: int | None) -> None:
        gpus = json.loads(self.file.read_text())
        if error := gpus[self.index].get("error"):
            raise ERRORS[error](driver="Tiny SMI", gpu=self.uuid, action="set its clock", detail="it will not")
        gpus[self.index]["locked_mhz"] = mhz
        draft = self.file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(gpus))
        draft.replace(self.file)

    def energy_j(self) -> float:
        return 50.0 * round(time.monotonic(), 1)

    def power_w(self) -> float:
        return 50.0

    def sm_clock_mhz(self) -> int:
        return json.loads(self.file.read_text())[self.index]["locked_mhz"] or 700

    def throttle(self) -> Throttle:
        return Throttle.SOFTWARE_POWER_CAP

    def modes(self) -> str:
        return "a mode"

    def power_limit_w(self) -> float:
        return 120.0

    def remarks(self) -> list[Remark]:
        return [Remark("fan", "loud", "close the door")]
