"""Every user message, in one place.

An entry has a code, a text and a remedy. The code is stable; each message ends with it in brackets, for searching.
The text says what is wrong and where. ``docs/troubleshooting.md`` is generated from this table.
"""

from __future__ import annotations

from perseus_ds.messages.devices import DEVICES
from perseus_ds.messages.entry import UserMessage

__all__ = ["CATALOGUE"]

CATALOGUE: dict[str, UserMessage] = {
    # -- configuration -------------------------------------------------------------------------------
    "config-missing": UserMessage("{file}: no such configuration file", "pass an existing YAML file to --perseus"),
    "config-unreadable": UserMessage(
        "{file}: cannot read the configuration: {detail}", "pass a regular file that this user may read"
    ),
    "config-empty": UserMessage("{file}: the configuration is empty", "write at least 'run_dir: runs/my-run'"),
    "config-not-yaml": UserMessage("{file}: not valid YAML: {detail}", "correct that line"),
    "config-not-mapping": UserMessage(
        "{file}: expected keys and values, found {found}", "start the file with 'run_dir: runs/my-run'"
    ),
    "config-unknown-key": UserMessage("{file}: unknown key '{key}'", "allowed here: {allowed}"),
    "config-renamed-key": UserMessage("{file}: {old} is now {new}", "rename the key; the old name is still read"),
    "config-bad-value": UserMessage(
        "{file}: {key}: {value} is not allowed: {detail}", "see {key} in docs/configuration.md"
    ),
    "run-dir-not-writable": UserMessage(
        "{file}: run_dir: cannot write to '{path}': {detail}", "choose a directory this user may write to"
    ),
    "script-missing": UserMessage("'{path}': no such training script", "pass the path of an existing Python file"),
    "option-without-value": UserMessage("{option} needs a value", "name a file: {option} perseus.yaml"),
    "simulator-stages": UserMessage(
        "simulator.stages: {chosen} of {file} do not fit a pipeline of {needed} stages",
        "list {needed} stages, each below {stages}",
    ),
    "hooks-silent": UserMessage(
        "{framework}: the hooks saw no forward or backward in a whole iteration",
        "this way of running the framework is not supported; report it with the version and your flags",
    ),
    "disabled": UserMessage(
        "PERSEUS_DS_DISABLE=1 is set: the training runs without Perseus", "unset it to switch Perseus on"
    ),
    "not-configured": UserMessage(
        "no configuration: the training runs without Perseus",
        "add '--perseus perseus.yaml' to the command, or a \"perseus\" section to the DeepSpeed JSON",
    ),
    "nothing-seen": UserMessage(
        "Perseus saw no pipeline iteration and did nothing",
        "train a DeepSpeed PipelineModule, or call Megatron-Core's forward-backward function",
    ),
    "one-stage": UserMessage(
        "the pipeline has one stage: no GPU waits, and the saving at the same speed is small",
        "train with at least two stages, or set objective.slowdown to trade time for energy",
    ),
    # -- the ranks together --------------------------------------------------------------------------
    "paused": UserMessage(
        "Perseus pauses, clocks are reset, the training goes on: {cause}",
        "no action needed: it comes back when all ranks answer; the traceback is in {file}",
    ),
    "attach-again": UserMessage(
        "Perseus cannot begin yet, the training goes on: {cause}",
        "no action needed: it tries again in {iterations} iterations; the traceback is in {file}",
    ),
    "switched-off": UserMessage(
        "Perseus is off for the rest of the run, clocks are reset, the training goes on: {cause}",
        "see the traceback in {file}; rejoin.attempts says how many failures are survived",
    ),
    "told-to-end": UserMessage(
        "this process has been told to end (SIGTERM)", "no action needed: the clocks were reset at once"
    ),
    "round-overdue": UserMessage(
        "not all ranks have answered within bus_timeout_s ({timeout_s:g} s)",
        "find what made a rank pause: a checkpoint, its data, a debugger; or raise bus_timeout_s",
    ),
    "failed-elsewhere": UserMessage("failure on {ranks}", "see the message of that rank"),
    "broadcast-damaged": UserMessage(
        "a message from another rank arrived damaged",
        "the training goes on at full clocks; Perseus tries again",
    ),
    "control-refused": UserMessage(
        "{file}: cannot read orders: {detail}",
        "correct the file's owner and mode ('chmod o-w'); until then the earlier orders hold",
    ),
    "control-line": UserMessage(
        "{file}: line {row}: {value!r} changes nothing: {detail}",
        "write 'objective OBJECTIVE' or 'straggler PIPELINE SLOWDOWN', and perhaps 'until TIME' after it",
    ),
    "guard-step": UserMessage(
        "iterations exceed max_slowdown, but no stage is slow: clocks rise {share:.0f} % of the way to the highest",
        "look for another cause of the slowdown, or raise max_slowdown to keep the plan",
    ),
    "guard-return": UserMessage(
        "the plan is active again", "no action needed: Perseus has measured the iteration time at the highest clocks"
    ),
    "drift": UserMessage(
        "iterations of all pipelines take {factor:.2f} times the profiled time, and no GPU is slow: solving new plans",
        "no action needed; delete the cached profile after a lasting change of the model or its input",
    ),
    "objective-closest": UserMessage(
        "{problem}", "Perseus uses the closest plan; to change it, set objective in the configuration"
    ),
    "observe-no-profile": UserMessage(
        "profiling needs clock changes, and Perseus sets no clock here",
        "to see the possible saving, set profiling.profile to a CSV, or profiling.cache_dir to a cached profile",
    ),
    "profile-clock": UserMessage(
        "{file}: {mhz} MHz is not a clock of this job's {gpu}", "profile this GPU model, or remove the rows"
    ),
    # -- frameworks ----------------------------------------------------------------------------------
    "framework-untested": UserMessage(
        "no test has seen {framework}, only {tested}: all that the hooks rely on is there, so Perseus goes on",
        "no action needed; if something is wrong, report it with this version",
    ),
    "framework-changed": UserMessage(
        "{framework} lacks what the hooks rely on: {detail}",
        "install a tested version ({tested}), or set 'on_unsupported: warn' to train without Perseus",
    ),
    "framework-mode": UserMessage(
        "{framework}: {flag} hides forwards and backwards: {reason}",
        "train without {flag}, or set 'on_unsupported: warn' to train without Perseus",
    ),
    # -- profiling -----------------------------------------------------------------------------------
    "profiling-no-energy": UserMessage(
        "too few readings of the energy counter: {updates} updates over {instructions} instructions",
        "profile for more iterations, or set profiling.profile to a CSV",
    ),
    "energy-unknown": UserMessage(
        "{gpus} of {all} GPUs: the energy counter does not tell the energies of single instructions",
        "plans follow the published power law; set profiling.profile to a measured CSV for better ones",
    ),
    "energy-borrowed": UserMessage(
        "{gpus} of {all} GPUs: the energy counter does not tell the energies of single instructions",
        "no action needed: they count with the other GPUs' powers, at the level that their own counters show",
    ),
    "energy-uncertain": UserMessage(
        "{gpus} of {all} GPUs: energies of instructions are known to ±{percent} % only, predicted savings roughly",
        "raise profiling.max_iterations; instructions much shorter than the counter's average need more of them",
    ),
    "microbatches-differ": UserMessage(
        "instructions of one kind differ by ±{percent} % from micro-batch to micro-batch",
        "no action needed: plans count with it, and keep clear of the slack that it needs",
    ),
    "cache-damaged": UserMessage(
        "{file}: the cached profile is damaged: {detail}",
        "no action needed: the file is now '{aside}', and Perseus profiles again",
    ),
    "cache-foreign": UserMessage(
        "{file}: the cached profile belongs to another job: {detail}",
        "no action needed: the file is now '{aside}', and Perseus profiles again",
    ),
    "cache-unreadable": UserMessage(
        "{file}: cannot read the cached profile: {detail}", "correct its permissions; Perseus profiles again"
    ),
    "cache-not-written": UserMessage(
        "{file}: cannot write the profile to the cache: {detail}",
        "free some space or change profiling.cache_dir; the training goes on",
    ),
    # -- profile tables and plans ---------------------------------------------------------------------
    "profile-unreadable": UserMessage("{file}: cannot read the profile: {detail}", "pass an existing CSV file"),
    "profile-empty": UserMessage(
        "{file}: the profile has no rows",
        "needed: stage,instruction,frequency,time,energy and one row per frequency",
    ),
    "profile-missing-column": UserMessage(
        "{file}: column '{column}' is missing", "needed: stage,instruction,frequency,time,energy"
    ),
    "profile-short-row": UserMessage(
        "{file}: row {row} has {found} cells", "write at least {needed}, as in the header"
    ),
    "profile-bad-cell": UserMessage(
        "{file}: row {row}, column '{column}': {value!r} is not allowed", "allowed: {allowed}"
    ),
    "profile-missing-curve": UserMessage(
        "{file}: no rows for the {curve}", "every stage and chunk needs forward and backward rows"
    ),
    "signal-unreadable": UserMessage(
        "{file}: cannot read the signal: {detail}", "needed: a CSV file with the columns iterations,power"
    ),
    "plan-bad-value": UserMessage("{name}: {value} is not allowed", "allowed: {allowed}"),
    "plan-output": UserMessage("cannot write to '{path}': {detail}", "choose a directory this user may write to"),
    "plots-missing": UserMessage("plots need matplotlib", "run: pip install 'perseus_ds[report]'"),
    "plan-infeasible": UserMessage("objective {objective} cannot be met: {detail}", "closest plan: {closest}"),
    "dag-cyclic": UserMessage(
        "the pipeline's dependencies form a cycle through {where}", "check the schedule or trace"
    ),
    "resume-damaged": UserMessage(
        "{file}: what the earlier run left is damaged: {detail}",
        "nothing: the pipeline is traced and its baseline measured again",
    ),
    "trace-unmatched": UserMessage(
        "trace: {count} sends but {other} receives of {tag} from stage {sender} to stage {receiver}",
        "record one whole iteration of every stage",
    ),
    "zeus-plan-unreadable": UserMessage(
        "{file}: not a Zeus frequency plan: {detail}",
        "expected one list per stage, each of ('forward' or 'backward', MHz)",
    ),
    **DEVICES,
    # -- report, metrics, doctor --------------------------------------------------------------------------
    "ended-early": UserMessage(
        "the training ended during {phase}, before a plan took effect: no energy was saved",
        "train longer: a plan takes up to {iterations} iterations, and a few more for the solve",
    ),
    "saves-nothing": UserMessage(
        "the plans save no energy: {percent} % at the latest baselines",
        "raise objective.slowdown, or train with PERSEUS_DS_DISABLE=1: so balanced a pipeline leaves no slack",
    ),
    "metrics-not-written": UserMessage(
        "writing metrics has stopped: {detail}",
        "correct report.prometheus_textfile or the framework's monitor; the training goes on",
    ),
    "report-not-written": UserMessage(
        "{path}: cannot write report.html: {detail}", "write it again with 'perseus-ds report {path}'"
    ),
    "run-over": UserMessage("{path}: the job is over", "pass the run_dir of a running job"),
    "order-not-written": UserMessage(
        "{file}: cannot write the order: {detail}", "free some space or check the permissions; nothing has changed"
    ),
    "order-unanswered": UserMessage(
        "{path}: no answer to the order within {seconds:g} s",
        "see 'perseus-ds status {path}'; the order stays in the file control until another one",
    ),
    "run-missing": UserMessage("{path}: no run directory: {detail}", "pass the run_dir of a started run"),
    "run-file-damaged": UserMessage("{file}: cannot read the file: {detail}", "repeat the run, or remove the file"),
    "calibration-damaged": UserMessage(
        "{path}: not a calibration: {detail}",
        "no action needed: the file is now '{aside}', and Perseus calibrates again",
    ),
    "calibration-cache": UserMessage(
        "{path}: cannot save the calibration: {detail}",
        "free some space or change profiling.cache_dir; the next start calibrates again",
    ),
}
