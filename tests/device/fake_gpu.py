"""A GPU in this process, for what need not be tested through a driver."""

from perseus_ds.device.driver import DriverError, Remark, Throttle


class FakeGpu:
    """Does at once what it is asked for, unless ``errors`` holds what it raises next."""

    index = 0
    pci_bus_id = "0000:01:00.0"
    uuid = "GPU-fake"
    name = "Fake GPU"
    driver_version = "1"
    supported_clocks_mhz = (1410, 1200, 900)
    clock_step_mhz = 15
    sets_clocks = True

    def __init__(self) -> None:
        self.asked: list[int | None] = []
        self.errors: list[DriverError] = []
        self.actual_mhz = 1410
        self.counter_j = 0.0
        self.reasons = Throttle(0)
        self.shown_w = 50.0

    def _answer(self) -> None:
        if self.errors:
            raise self.errors.pop(0)

    def lock_clock(self, mhz: int) -> None:
        self.asked.append(mhz)
        self._answer()
        self.actual_mhz = mhz

    def reset_clocks(self) -> None:
        self.asked.append(None)
        self._answer()
        self.actual_mhz = 1410

    def energy_j(self) -> float:
        return self.counter_j

    def power_w(self) -> float:
        return self.shown_w

    def sm_clock_mhz(self) -> int:
        self._answer()
        return self.actual_mhz

    def throttle(self) -> Throttle:
        return self.reasons

    def modes(self) -> str:
        return "a mode"

    def power_limit_w(self) -> float:
        return 400.0

    def remarks(self) -> list[Remark]:
        return []


def refusal(kind: type[DriverError] = DriverError) -> DriverError:
    """An error as a driver gives it."""
    return kind(driver="Fake", gpu="Fake GPU", action="work", detail="no")
