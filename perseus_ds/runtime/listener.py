"""Between the patches and a rank: installs, attaches, and keeps every error of Perseus away from the training."""

from __future__ import annotations

import argparse
import atexit
import os
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseus_ds.config import Config, parse_config
from perseus_ds.console import log, say_why_it_ends
from perseus_ds.coordination.failure import concerns_all
from perseus_ds.messages import PerseusError, one_line, user_message
from perseus_ds.pipeline.events import Operation, Topology
from perseus_ds.profiling.table import read_profile
from perseus_ds.ranks import rank, tells_for_all
from perseus_ds.rundir import check_writable, write_atomically
from perseus_ds.runtime.beginning import AttachFailed, Beginning
from perseus_ds.runtime.simulation import profile_file
from perseus_ds.runtime.termination import TerminationNotice

if TYPE_CHECKING:
    from perseus_ds.coordination.orders import Order
    from perseus_ds.runtime.session import RankSession

__all__ = ["DISABLE_VARIABLE", "PerseusListener", "place_order", "script_ended", "start"]

DISABLE_VARIABLE = "PERSEUS_DS_DISABLE"
"""Environment variable: 1 turns everything off."""

_listener: PerseusListener | None = None


def start(config: Config | None) -> None:
    """Install the patches once; a second call may bring the missing configuration.

    Args:
        config: The configuration. None: the framework's own configuration holds it, or Perseus stays off.

    Raises:
        PerseusError: An imported framework is not supported, or the run directory is not writable.
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


def place_order(order: Order) -> None:
    """Put an order on the bus with one of this rank's next rounds; no effect while Perseus is off."""
    if _listener is not None and _listener.session is not None:
        _listener.session.place(order)


def script_ended() -> None:
    """Tell the user if a script has ended and Perseus had nothing to do."""
    if _listener is not None:
        _listener.tell_if_idle()


class PerseusListener:
    """The listener of all patches, one per process.

    Attributes:
        config: None until known.
        session: None before the first iteration and after Perseus has ended for good.
    """

    def __init__(self) -> None:
        self.config: Config | None = None
        self.session: RankSession | None = None
        self._earlier: Path | None = None
        self._off = False
        self._beginning = Beginning()
        self._termination = TerminationNotice(lambda: self._quietly(self._told_to_end))
        self._resting = False  # after a failure, until the next iteration begins
        self._told_idle = False
        atexit.register(self._at_exit)

    def configure(self, config: Config) -> None:
        """Take the configuration; the first one counts.

        Raises:
            PerseusError: The run directory is not writable, or a profile named in the configuration is wrong.
        """
        if self.config is None:
            _check_files(config)
            self.config = config

    def framework_configured(self, section: Any, source: str) -> None:
        """Take the configuration from the framework's own, if no file was given.

        A wrong section ends the program before any training, with one line and exit code 2.
        """
        if section is None or self.config is not None:
            return
        try:
            self.configure(parse_config(section, source))
        except PerseusError as error:
            say_why_it_ends(error)
            sys.exit(2)

    def arguments_defined(self, parser: argparse.ArgumentParser) -> None:
        """Add ``--perseus FILE``."""
        from perseus_ds import add_config_arguments

        add_config_arguments(parser)

    def checkpoint_saved(self, directory: str) -> None:
        """Store the data for a later run in the checkpoint's directory."""
        self._pass_on("save", Path(directory, "perseus_ds"))

    def checkpoint_loaded(self, directory: str) -> None:
        """Remember the checkpoint: it may hold an earlier run's results."""
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
            if not self._beginning.is_due():
                return
            self._guarded(self._attach, topology)
        self._resting = False
        if self.session is not None:
            self._guarded(self._termination.watch)
        self._pass_on("iteration_begin", microbatches, training)
        if self._resting:
            self._resting = False
            self._pass_on("begin_alone")

    def unhooked(self) -> None:
        """Reset the clocks and turn off: the framework's hooks are gone."""
        self._off = True
        self._at_exit()

    def tell_if_idle(self) -> None:
        """Say once why Perseus does nothing: no configuration, or no pipeline."""
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

    def _told_to_end(self) -> None:
        if self.session is not None:
            self.session.told_to_end()

    def _pass_on(self, name: str, *arguments: Any) -> None:
        if self.session is not None and not self._resting:
            self._guarded(getattr(self.session, name), *arguments)

    def _guarded(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception as error:
            self._failed(error)

    def _attach(self, topology: Topology) -> None:
        from perseus_ds.runtime.attach import attach

        assert self.config is not None
        self.session = attach(self.config, topology, self._earlier, self._beginning.attempt)
        # Once more, as the last registered is called first: before the keeper ends, who is asked what it has to say.
        atexit.unregister(self._at_exit)
        atexit.register(self._at_exit)

    def _failed(self, error: Exception) -> None:
        """Handle an error of Perseus: pause it, or end it for good, and print one message. Training goes on."""
        assert self.config is not None
        self._resting, again = True, None
        if isinstance(error, AttachFailed):
            if not error.lasts:
                again = self._beginning.again(self.config.rejoin.attempts)
            error = error.error
        pauses = again is not None or self._pause(error)
        # What all ranks meet need not be told by every rank, and a pause is told by the rank that has caused it.
        told_there = pauses and isinstance(error, PerseusError) and error.code == "failed-elsewhere"
        if not told_there and (not concerns_all(error) or tells_for_all()):
            code = "attach-again" if again else "paused" if pauses else "switched-off"
            values = {"cause": _cause(error), "file": self._save_traceback(error), "iterations": again}
            log.error("%s", user_message(code, **values))
        if not pauses:
            self._off = True
            self._at_exit()

    def _pause(self, error: Exception) -> bool:
        """Return whether Perseus may come back."""
        try:
            return self.session is not None and self.session.pause(error)
        except Exception as another:
            log.debug("while pausing: %s", one_line(another))
            return False

    def _save_traceback(self, error: Exception) -> str:
        """Write the traceback to a file for a bug report; return its path."""
        assert self.config is not None
        file = self.config.run_dir / f"error-rank-{rank()}.txt"
        self._quietly(lambda: write_atomically(file, "".join(traceback.format_exception(error))))
        return str(file)

    def _at_exit(self) -> None:
        self._quietly(self._termination.release)
        session, self.session = self.session, None
        if session is not None:
            self._quietly(session.close)

    def _quietly(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            log.debug("while closing: %s", one_line(error))


def _check_files(config: Config) -> None:
    """Find errors that the YAML alone does not show, before any training."""
    if tells_for_all():
        check_writable(config.run_dir)
    if config.profiling.profile is not None:
        read_profile(config.profiling.profile)
    if config.simulator is not None:
        for profile in (config.simulator.profile, *config.simulator.pipeline_profiles):
            read_profile(profile_file(profile))


def _say(code: str) -> None:
    """Print on one rank what holds for all."""
    if tells_for_all():
        log.warning("%s", user_message(code))


def _cause(error: Exception) -> str:
    """Return the cause for a message: a bus timeout by its name, other errors on one line."""
    if isinstance(error, TimeoutError | FutureTimeout):
        return "the other ranks did not answer within bus_timeout_s"
    return one_line(error)
