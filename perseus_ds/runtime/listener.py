"""Between the patches and a rank: installs, attaches, and keeps every error of ours away from the training."""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseus_ds.config import Config, parse_config
from perseus_ds.console import log
from perseus_ds.messages import PerseusError, RemoteError, one_line, user_message
from perseus_ds.pipeline.events import Operation, Topology
from perseus_ds.profiling.table import read_profile
from perseus_ds.rundir import check_writable
from perseus_ds.runtime.simulation import profile_file

if TYPE_CHECKING:
    from perseus_ds.runtime.session import RankSession

__all__ = ["DISABLE_VARIABLE", "PerseusListener", "announce_straggler", "script_ended", "start"]

DISABLE_VARIABLE = "PERSEUS_DS_DISABLE"
"""Environment variable: 1 turns everything off."""

_listener: PerseusListener | None = None


def start(config: Config | None) -> None:
    """Install the patches once; a second call may bring the configuration that the first one lacked.

    Args:
        config: The configuration; None: the framework's own configuration holds it, or Perseus stays off.

    Raises:
        PerseusError: A framework that is already imported is not supported, or the run directory is not writable.
    """
    global _listener
    if os.environ.get(DISABLE_VARIABLE) == "1":
        _say("disabled")
        return
    if _listener is None:
        from perseus_ds.patches import install_all

        _listener = PerseusListener()
        install_all(_listener, on_unsupported=config.on_unsupported if config else "error")
    if config is not None:
        _listener.configure(config)


def announce_straggler(pipeline: int, slowdown: float) -> None:
    """Put a hint on the bus with this rank's next round; without effect while Perseus is off."""
    if _listener is not None and _listener.session is not None:
        _listener.session.announce(pipeline, slowdown)


def script_ended() -> None:
    """Say so where a script has come to its end and Perseus had nothing to do."""
    if _listener is not None:
        _listener.tell_if_idle()


class PerseusListener:
    """The listener of all patches, one per process.

    Attributes:
        config: None until it is known.
        session: None before the first iteration and once Perseus is off.
    """

    def __init__(self) -> None:
        self.config: Config | None = None
        self.session: RankSession | None = None
        self._earlier: Path | None = None
        self._off = False
        self._told_idle = False
        atexit.register(self._at_exit)

    def configure(self, config: Config) -> None:
        """Take the configuration; the first one counts.

        Raises:
            PerseusError: The run directory cannot be written to, or a profile that it names is wrong.
        """
        if self.config is None:
            _check_files(config)
            self.config = config

    def framework_configured(self, section: Any, source: str) -> None:
        """Take the configuration from the framework's own, where no file was given.

        A wrong section ends the program with one line and exit code 2, before any training.
        """
        if section is None or self.config is not None:
            return
        try:
            self.configure(parse_config(section, source))
        except PerseusError as error:
            if os.environ.get("RANK", "0") == "0":
                print(f"perseus_ds: {error}", file=sys.stderr, flush=True)
            sys.exit(2)

    def checkpoint_saved(self, directory: str) -> None:
        """Leave in a checkpoint's directory what a later run resumes from."""
        self._pass_on("save", Path(directory, "perseus_ds"))

    def checkpoint_loaded(self, directory: str) -> None:
        """Remember where an earlier run may have left what it knew."""
        self._earlier = Path(directory, "perseus_ds")

    def iteration_begin(self, topology: Topology, microbatches: int, training: bool) -> None:
        """Attach at the first training iteration; then pass on."""
        if self._off:
            return
        if self.session is None:
            if not training:
                return
            if self.config is None:
                self.tell_if_idle()
                return
            self._guarded(self._attach, topology)
        self._pass_on("iteration_begin", microbatches, training)

    def tell_if_idle(self) -> None:
        """Say once why nothing is done: without a configuration, or because no pipeline was seen."""
        if self.session is None and not self._off and not self._told_idle:
            self._told_idle = True
            _say("not-configured" if self.config is None else "nothing-seen")

    def operation_begin(self, operation: Operation) -> None:
        """Pass on."""
        self._pass_on("operation_begin", operation)

    def operation_end(self, operation: Operation) -> None:
        """Pass on."""
        self._pass_on("operation_end", operation)

    def iteration_end(self) -> None:
        """Pass on."""
        self._pass_on("iteration_end")

    def _pass_on(self, name: str, *arguments: Any) -> None:
        if self.session is not None:
            self._guarded(getattr(self.session, name), *arguments)

    def _guarded(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception as error:
            self._switch_off(error)

    def _attach(self, topology: Topology) -> None:
        from perseus_ds.runtime.attach import attach

        assert self.config is not None
        self.session = attach(self.config, topology, self._earlier)
        # Once more, as the last registered is called first: before the keeper ends, who is asked what it has to say.
        atexit.unregister(self._at_exit)
        atexit.register(self._at_exit)

    def _switch_off(self, error: Exception) -> None:
        """An error of ours: clocks reset, one message, and the training goes on without us, on all ranks."""
        self._off = True
        session, self.session = self.session, None
        code = error.code if isinstance(error, PerseusError) else ""
        # What another rank tells of itself need not be told by every rank.
        heard = code == "failed-elsewhere" or isinstance(error, RemoteError)
        if not heard or os.environ.get("RANK", "0") == "0":
            log.error("%s", user_message("switched-off", cause=_cause(error), file=self._save_traceback(error)))
        if session is not None:
            if code != "failed-elsewhere":
                self._quietly(session.fail)
            self._quietly(session.close)

    def _save_traceback(self, error: Exception) -> str:
        """Keep for a bug report what is too long for a line; return where."""
        assert self.config is not None
        file = self.config.run_dir / f"error-rank-{os.environ.get('RANK', '0')}.txt"
        self._quietly(lambda: file.write_text("".join(traceback.format_exception(error)), encoding="utf-8"))
        return str(file)

    def _at_exit(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            self._quietly(session.close)

    def _quietly(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            log.debug("while closing: %s", one_line(error))


def _check_files(config: Config) -> None:
    """Find mistakes that the YAML alone does not show, before anything trains."""
    if os.environ.get("RANK", "0") == "0":
        check_writable(config.run_dir)
    if config.profiling.profile is not None:
        read_profile(config.profiling.profile)
    if config.simulator is not None:
        for profile in (config.simulator.profile, *config.simulator.pipeline_profiles):
            read_profile(profile_file(profile))


def _say(code: str) -> None:
    """Say on one rank what is true of all."""
    if os.environ.get("RANK", "0") == "0":
        log.warning("%s", user_message(code))


def _cause(error: Exception) -> str:
    """Return what a message says of an error: a time-out of the bus by its name, others on one line."""
    if isinstance(error, TimeoutError | FutureTimeout):
        return "the other ranks did not answer within bus_timeout_s"
    return one_line(error)
