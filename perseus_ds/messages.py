"""Every message a user can meet, in one place.

An entry has a code (stable, printed in brackets so that it can be searched for), a text that says what
is wrong and where, and a remedy. ``docs/troubleshooting.md`` is generated from this table.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CATALOGUE", "PerseusError", "RemoteError", "UserMessage", "one_line", "user_message"]


@dataclass(frozen=True)
class UserMessage:
    """One catalogue entry.

    Attributes:
        text: What is wrong, with ``{placeholders}`` for file, key, value.
        remedy: What the user can do, with the same placeholders.
    """

    text: str
    remedy: str


CATALOGUE: dict[str, UserMessage] = {
    # -- configuration -------------------------------------------------------------------------------
    "config-missing": UserMessage("{file}: no such configuration file", "give an existing YAML file to --perseus"),
    "config-empty": UserMessage("{file}: the configuration is empty", "write at least 'run_dir: runs/my-run'"),
    "config-not-yaml": UserMessage("{file}: not valid YAML: {detail}", "correct the line named"),
    "config-not-mapping": UserMessage(
        "{file}: expected keys and values, found {found}", "start the file with 'run_dir: runs/my-run'"
    ),
    "config-unknown-key": UserMessage("{file}: unknown key '{key}'", "allowed here: {allowed}"),
    "config-bad-value": UserMessage(
        "{file}: {key}: {value!r} is not allowed: {detail}", "see {key} in docs/configuration.md"
    ),
    "run-dir-not-writable": UserMessage(
        "{file}: run_dir: cannot write to '{path}': {detail}", "choose a directory this user may write to"
    ),
    "script-missing": UserMessage("'{path}': no such training script", "give the path of an existing Python file"),
    "option-without-value": UserMessage("{option} needs a value", "give a file: {option} perseus.yaml"),
    "simulator-stages": UserMessage(
        "simulator.stages: {chosen} of {file} cannot serve a pipeline of {needed} stages",
        "name {needed} stages, each below {stages}",
    ),
    "hooks-silent": UserMessage(
        "{framework}: an iteration went by without a forward or backward that we could see",
        "this framework runs them in a way that is not supported: report it with the version and your flags",
    ),
    "disabled": UserMessage(
        "PERSEUS_DS_DISABLE=1 is set: the training runs without Perseus", "unset it to switch Perseus on"
    ),
    "not-configured": UserMessage(
        "no configuration was given: the training runs without Perseus",
        "add '--perseus perseus.yaml' to the command, or a \"perseus\" section to the DeepSpeed JSON",
    ),
    "nothing-seen": UserMessage(
        "no iteration of a pipeline was seen: Perseus did nothing",
        "train a DeepSpeed PipelineModule, or call Megatron-Core's forward-backward function",
    ),
    "one-stage": UserMessage(
        "the pipeline has one stage: nothing in it waits, so that little can be saved at the same speed",
        "train with two stages or more, or set objective.slowdown to give time for energy",
    ),
    # -- the ranks together --------------------------------------------------------------------------
    "switched-off": UserMessage(
        "Perseus is off, clocks are reset, the training goes on: {cause}", "the traceback is in {file}"
    ),
    "failed-elsewhere": UserMessage("switched off together with: {ranks}", "see that rank's own message"),
    "broadcast-damaged": UserMessage(
        "what the coordinator sent arrived damaged",
        "Perseus is off for this job; the training goes on at full clocks",
    ),
    "control-line": UserMessage(
        "{file}: line {row}: {value!r} is not understood",
        "write 'straggler PIPELINE SLOWDOWN' with a pipeline of this job and a slowdown from 1.0 to 10",
    ),
    "guard-step": UserMessage(
        "iterations take longer than max_slowdown allows and no stage is slow: {share:.0f} % of the way back to the "
        "highest clocks",
        "look for what else slows the job; a larger max_slowdown in the configuration keeps the plan",
    ),
    "guard-return": UserMessage(
        "the plan is back in force", "nothing to do; the iteration time at the highest clocks was measured"
    ),
    "drift": UserMessage(
        "all pipelines run {factor:.2f} times as long as profiled and no GPU alone is slow: the plans are made anew",
        "nothing to do; delete the cached profile if the model or its input has changed for good",
    ),
    "objective-closest": UserMessage("{problem}", "the closest plan is used; change objective in the configuration"),
    "observe-no-profile": UserMessage(
        "no clocks are set here, so that nothing can be profiled",
        "give profiling.profile a CSV or profiling.cache_dir a cached profile to see what could be saved",
    ),
    "profile-clock": UserMessage(
        "{file}: {mhz} MHz is not a clock of this job's {gpu}", "profile this GPU model, or remove the rows"
    ),
    # -- frameworks ----------------------------------------------------------------------------------
    "framework-unsupported": UserMessage(
        "{framework} {version} is not supported",
        "install {framework}{supported}, or set 'on_unsupported: warn' to train without Perseus",
    ),
    "framework-changed": UserMessage(
        "{framework} is not what its version number says: {detail}",
        "reinstall it unmodified, or set 'on_unsupported: warn' to train without Perseus",
    ),
    "framework-mode": UserMessage(
        "{framework}: {flag} hides the forwards and backwards: {reason}",
        "train without {flag}, or set 'on_unsupported: warn' to train without Perseus",
    ),
    # -- profiling -----------------------------------------------------------------------------------
    "profiling-no-energy": UserMessage(
        "the energy counter told too little: {updates} updates over {instructions} instructions",
        "profile for more iterations, or give profiling.profile a CSV",
    ),
    "cache-damaged": UserMessage(
        "{file}: the cached profile is damaged: {detail}", "it was renamed to '{aside}' and is measured again"
    ),
    "cache-foreign": UserMessage(
        "{file}: the cached profile is of something else: {detail}",
        "it was renamed to '{aside}' and is measured again",
    ),
    "cache-unreadable": UserMessage(
        "{file}: the cached profile cannot be read: {detail}", "correct its permissions; it is measured again"
    ),
    "cache-not-written": UserMessage(
        "{file}: the profile could not be cached: {detail}",
        "free some space or change profiling.cache_dir; the training goes on",
    ),
    # -- profile tables and plans ---------------------------------------------------------------------
    "profile-unreadable": UserMessage("{file}: cannot read the profile: {detail}", "give an existing CSV file"),
    "profile-empty": UserMessage(
        "{file}: the profile has no rows",
        "needed: stage,instruction,frequency,time,energy and one row per frequency",
    ),
    "profile-missing-column": UserMessage(
        "{file}: column '{column}' is missing", "needed: stage,instruction,frequency,time,energy"
    ),
    "profile-short-row": UserMessage(
        "{file}: row {row} has {found} cells", "give at least {needed}, as the header says"
    ),
    "profile-bad-cell": UserMessage(
        "{file}: row {row}, column '{column}': {value!r} is not allowed", "allowed: {allowed}"
    ),
    "profile-missing-curve": UserMessage(
        "{file}: no rows for the {curve}", "every stage and chunk needs forward and backward rows"
    ),
    "plan-bad-value": UserMessage("{name}: {value} is not allowed", "allowed: {allowed}"),
    "plan-output": UserMessage("cannot write to '{path}': {detail}", "choose a directory this user may write to"),
    "plots-missing": UserMessage("plots need matplotlib", "pip install 'perseus_ds[report]'"),
    "plan-infeasible": UserMessage("objective {objective} cannot be met: {detail}", "closest plan: {closest}"),
    "dag-cyclic": UserMessage(
        "the pipeline's dependencies form a cycle through {where}", "check the schedule or trace"
    ),
    "trace-unmatched": UserMessage(
        "trace: {count} sends but {other} receives of {tag} from stage {sender} to stage {receiver}",
        "record one whole iteration of every stage",
    ),
    "zeus-plan-unreadable": UserMessage(
        "{file}: not a Zeus frequency plan: {detail}",
        "expected a list of one list per stage of ('forward' or 'backward', MHz)",
    ),
    # -- devices ------------------------------------------------------------------------------------------
    "nvml-no-permission": UserMessage(
        "{gpu}: NVML does not permit this process to {action}",
        "run as root or with CAP_SYS_ADMIN (containers: --cap-add SYS_ADMIN), or run zeusd on the host and set "
        "device.backend: zeusd, or set mode: observe",
    ),
    "nvml-not-supported": UserMessage(
        "{gpu}: the driver says 'not supported' when asked to {action}",
        "locked clocks and the energy counter need a data-centre GPU, Volta or newer; set mode: observe to go "
        "on without",
    ),
    "nvml-gpu-is-lost": UserMessage(
        "{gpu}: the GPU has fallen off the bus (asked to {action})",
        "see dmesg for Xid errors; reset or replace the GPU",
    ),
    "nvml-timeout": UserMessage(
        "{gpu}: the driver timed out when asked to {action}",
        "look for a hung nvidia-smi or driver, and dmesg",
    ),
    "nvml-no-driver": UserMessage(
        "NVML does not start: {detail}",
        "install the NVIDIA driver, or configure 'simulator' to use virtual GPUs",
    ),
    "nvml-unknown": UserMessage(
        "{gpu}: NVML failed when asked to {action}: {detail}",
        "see nvidia-smi and dmesg; training goes on without",
    ),
    "nvml-mig": UserMessage(
        "{gpu}: MIG slices have neither clocks nor a power reading of their own",
        "switch MIG off, or set mode: observe on another GPU",
    ),
    "nvml-old-package": UserMessage(
        "{file}: this pynvml is the deprecated package of that name",
        "pip uninstall pynvml, then pip install nvidia-ml-py",
    ),
    "simulator-missing": UserMessage(
        "PERSEUS_DS_SIMULATOR={path}: no virtual GPUs there: {detail}",
        "unset the variable, or create the GPUs first",
    ),
    "gpu-not-visible": UserMessage(
        "CUDA device {index} is not among CUDA_VISIBLE_DEVICES={visible}", "start one rank per visible GPU"
    ),
    "gpu-not-found": UserMessage("GPU {gpu}: NVML knows none such", "compare CUDA_VISIBLE_DEVICES with nvidia-smi -L"),
    "gpu-order": UserMessage(
        "CUDA device {index}: with different models ({names}) CUDA's order need not be NVML's",
        "set CUDA_DEVICE_ORDER=PCI_BUS_ID or give UUIDs in CUDA_VISIBLE_DEVICES",
    ),
    "zeusd-unreachable": UserMessage(
        "{address}: zeusd does not answer: {detail}",
        "start zeusd, or correct device.zeusd_address or ZEUSD_SOCK_PATH",
    ),
    "zeusd-token": UserMessage("{address}: zeusd refuses the token: {detail}", "set ZEUSD_TOKEN to a valid token"),
    "zeusd-refused": UserMessage(
        "{address}: zeusd refuses {action} (HTTP {status}): {detail}",
        "see zeusd's own log; it must run as root with the API group gpu-control",
    ),
    "zeusd-unknown-gpu": UserMessage(
        "{address}: zeusd knows no GPU at PCI address {pci_bus_id}", "is this zeusd running on the same host?"
    ),
    "gpu-taken": UserMessage(
        "{uuid}: the clock keeper of another training or rank (process {pid}) has this GPU",
        "give every rank a GPU of its own (LOCAL_RANK, CUDA_VISIBLE_DEVICES), or end the other training",
    ),
    "keeper-start": UserMessage(
        "the clock keeper did not start: {detail}",
        "run 'perseus-ds doctor' on this host; training goes on without",
    ),
    "keeper-gone": UserMessage(
        "the clock keeper (process {pid}) is gone; its clocks are being reset and none will be set any more",
        "look for who killed it; a restart of the training starts a new one",
    ),
    "keeper-reset": UserMessage(
        "{gpu}: the clocks could not be reset: {detail}", "run 'perseus-ds reset-clocks' as root on this host"
    ),
    "keeper-full": UserMessage(
        "the clock keeper does not take requests: a driver call hangs",
        "see nvidia-smi and dmesg; training goes on",
    ),
    "counter-frozen": UserMessage(
        "{gpu}: the energy counter has not moved for {seconds:.1f} s",
        "energies are unknown until it moves; see nvidia-smi",
    ),
    "counter-restarted": UserMessage(
        "{gpu}: the energy counter went back by {lost_j:.1f} J",
        "one period's energy is lost; was the driver reloaded?",
    ),
    "clock-not-reached": UserMessage(
        "{gpu}: asked for {mhz} MHz, runs at {actual_mhz} MHz: {reason}",
        "check cooling and power limit, or whether somebody else sets this GPU's clocks",
    ),
    # -- report, metrics, doctor --------------------------------------------------------------------------
    "ended-early": UserMessage(
        "Perseus ended during {phase}, before a plan was in force: nothing could be saved",
        "train longer: a plan takes up to {iterations} iterations and those that go by while it is solved",
    ),
    "metrics-not-written": UserMessage(
        "metrics are not written any more: {detail}",
        "correct report.prometheus_textfile or the framework's monitor; the training goes on",
    ),
    "report-not-written": UserMessage(
        "{path}: report.html could not be written: {detail}", "make it again with 'perseus-ds report {path}'"
    ),
    "run-missing": UserMessage("{path}: no run directory: {detail}", "give the run_dir of a run that has started"),
    "run-file-damaged": UserMessage("{file}: cannot be read: {detail}", "make the run again, or remove the file"),
    "calibration-damaged": UserMessage(
        "{path}: not a calibration: {detail}", "it was set aside as {aside} and is measured anew"
    ),
    "calibration-cache": UserMessage(
        "{path}: calibration not kept: {detail}",
        "free space or change profiling.cache_dir; it is measured anew next time",
    ),
}


def user_message(code: str, **values: object) -> str:
    """Return the one-line text of a catalogue entry.

    Args:
        code: Key of ``CATALOGUE``.
        **values: Values of the entry's placeholders.

    Returns:
        ``"<what is wrong>; <remedy> [<code>]"`` on one line.
    """
    entry = CATALOGUE[code]
    line = f"{entry.text.format(**values)}; {entry.remedy.format(**values)} [{code}]"
    return " ".join(line.split())


class PerseusError(Exception):
    """An error that the user can act on. ``str()`` of it is one line.

    Attributes:
        code: Key of ``CATALOGUE``.
    """

    def __init__(self, code: str, **values: object) -> None:
        super().__init__(user_message(code, **values))
        self.code = code


class RemoteError(Exception):
    """An error that another rank has met; its cause holds the traceback from there."""


def one_line(error: BaseException) -> str:
    """Return an error on one line: ours as it is, others with their type."""
    text = str(error) if isinstance(error, PerseusError | RemoteError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())
