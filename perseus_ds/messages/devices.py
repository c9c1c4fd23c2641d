"""The user messages about GPUs, their clocks, counters and keepers."""

from __future__ import annotations

from perseus_ds.messages.entry import UserMessage

__all__ = ["DEVICES"]

DEVICES: dict[str, UserMessage] = {
    "gpu-not-permitted": UserMessage(
        "{gpu}: cannot {action}: {driver} denies permission",
        "run as root or with CAP_SYS_ADMIN (containers: --cap-add SYS_ADMIN), or use zeusd with device.backend: zeusd, "
        "or set mode: observe",
    ),
    "gpu-not-supported": UserMessage(
        "{gpu}: cannot {action}: {driver} does not support it",
        "use a data-centre GPU, Volta or newer, or set mode: observe",
    ),
    "gpu-lost": UserMessage(
        "{gpu}: cannot {action}: the GPU has fallen off the bus",
        "see dmesg for Xid errors; reset or replace the GPU",
    ),
    "driver-timeout": UserMessage(
        "{gpu}: cannot {action}: {driver} timed out",
        "look for a hung nvidia-smi or driver, and see dmesg",
    ),
    "driver-missing": UserMessage(
        "{driver} does not start: {detail}",
        "install the GPU's driver, or configure 'simulator' to use virtual GPUs",
    ),
    "driver-failed": UserMessage(
        "{gpu}: cannot {action}: {driver} failed: {detail}",
        "see nvidia-smi and dmesg; the training goes on without Perseus",
    ),
    "nvml-mig": UserMessage(
        "{gpu}: MIG slices have no clock and no power reading of their own",
        "switch MIG off, or set mode: observe on another GPU",
    ),
    "nvml-old-package": UserMessage(
        "{file}: this pynvml comes from the deprecated package",
        "run: pip uninstall pynvml, then: pip install nvidia-ml-py",
    ),
    "simulator-missing": UserMessage(
        "PERSEUS_DS_SIMULATOR={path}: no virtual GPUs there: {detail}",
        "unset the variable, or create the virtual GPUs first",
    ),
    "gpu-not-visible": UserMessage(
        "CUDA device {index} is not among CUDA_VISIBLE_DEVICES={visible}", "start one rank per visible GPU"
    ),
    "gpu-not-found": UserMessage("GPU {gpu}: unknown to the driver", "compare CUDA_VISIBLE_DEVICES with nvidia-smi -L"),
    "gpu-order": UserMessage(
        "CUDA device {index}: CUDA and the driver may order different GPU models ({names}) differently",
        "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or list UUIDs in CUDA_VISIBLE_DEVICES",
    ),
    "zeusd-unreachable": UserMessage(
        "{address}: zeusd does not answer: {detail}",
        "start zeusd, or correct device.zeusd_address or ZEUSD_SOCK_PATH",
    ),
    "zeusd-token": UserMessage("{address}: zeusd refuses the token: {detail}", "set ZEUSD_TOKEN to a valid token"),
    "zeusd-refused": UserMessage(
        "{address}: zeusd refuses {action} (HTTP {status}): {detail}",
        "see the zeusd log; zeusd must run as root with the API group gpu-control",
    ),
    "zeusd-unknown-gpu": UserMessage(
        "{address}: zeusd knows no GPU at PCI address {pci_bus_id}", "connect to the zeusd of this host"
    ),
    "site-clock": UserMessage(
        "{gpu}: no supported clock is as low as {mhz} MHz; the lowest is {lowest_mhz} MHz",
        "raise device.max_mhz or device.restore_mhz",
    ),
    "gpu-taken": UserMessage(
        "{uuid}: the clock keeper of another job or rank (process {pid}) holds this GPU",
        "give every rank its own GPU (LOCAL_RANK, CUDA_VISIBLE_DEVICES), or end the other job",
    ),
    "keeper-start": UserMessage(
        "the clock keeper did not start: {detail}",
        "run 'perseus-ds doctor' on this host; the training goes on without Perseus",
    ),
    "keeper-gone": UserMessage(
        "the clock keeper (process {pid}) has died: its clocks are reset",
        "find out what killed it; unless that happens often, another one starts",
    ),
    "keeper-back": UserMessage("a new clock keeper (process {pid}) sets the clocks again", "no action needed"),
    "keepers-die": UserMessage(
        "clock keepers die again and again: no clock is set on this GPU any more",
        "find out what kills them; rejoin.attempts says how many deaths are survived",
    ),
    "keeper-reset": UserMessage(
        "{gpu}: cannot reset the clocks: {detail}",
        "run 'perseus-ds reset-clocks' as root on this host; --restore-mhz puts a lock of your own back",
    ),
    "keeper-full": UserMessage(
        "the clock keeper accepts no requests: a driver call hangs",
        "see nvidia-smi and dmesg; the training goes on",
    ),
    "counter-frozen": UserMessage(
        "{gpu}: the energy counter has not moved for {seconds:.1f} s",
        "see nvidia-smi; energies are unknown until the counter moves",
    ),
    "counter-restarted": UserMessage(
        "{gpu}: the energy counter fell by {lost_j:.1f} J",
        "check for a reloaded driver; the energy of one counter period is lost",
    ),
    "clock-not-reached": UserMessage(
        "{gpu}: requested {mhz} MHz, runs at {actual_mhz} MHz: {reason}",
        "check the cooling, the power limit, and other programs that set clocks",
    ),
    "foreign-clock-respected": UserMessage(
        "{gpu}: another program has set {mhz} MHz over our {own_mhz} MHz: this GPU is left to it from now on",
        "find that program; device.foreign_clocks: take_back sets our clocks again",
    ),
    "foreign-clock-taken-back": UserMessage(
        "{gpu}: another program has set {mhz} MHz over our {own_mhz} MHz: our clocks are set again",
        "find that program; device.foreign_clocks: respect leaves the GPU to it",
    ),
}
