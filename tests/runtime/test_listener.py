"""The listener: what reaches the rank, what the user is told, and how the training goes on when Perseus fails."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perseus_ds.config import Config
from perseus_ds.coordination.orders import Order
from perseus_ds.messages import PerseusError, RemoteError
from perseus_ds.pipeline.events import Operation, Topology
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.runtime import attach, listener
from perseus_ds.runtime.beginning import AttachFailed
from perseus_ds.runtime.listener import PerseusListener

ALONE, FORWARD = Topology(0, 1, 0, 1, 0, 1), Operation(Kind.FORWARD, 0)


class Session:
    """Notes what it is told, and raises what a test has put into ``errors``."""

    def __init__(self) -> None:
        self.told, self.errors, self.pauses = [], {}, False

    def __getattr__(self, name):
        def note(*arguments):
            self.told.append((name, *arguments))
            if name in self.errors:
                raise self.errors[name]
            return self.pauses

        return note

    @property
    def names(self) -> list[str]:
        return [name for name, *_ in self.told]


@pytest.fixture
def session(monkeypatch) -> Session:
    """The session that the first training iteration attaches; what it was attached with is in ``told`` too."""
    session = Session()

    def attached(config, topology, checkpoint, attempt):
        session.told.append(("attach", topology, checkpoint, attempt))
        if "attach" in session.errors:
            raise session.errors["attach"]
        return session

    monkeypatch.setattr(attach, "attach", attached)
    return session


@pytest.fixture
def ours(tmp_path, session) -> PerseusListener:
    ours = PerseusListener()
    ours.configure(Config(run_dir=tmp_path))
    return ours


def test_the_first_training_iteration_attaches_and_from_then_on_all_is_passed_on(ours, session, tmp_path):
    ours.checkpoint_saved("nothing to keep yet")
    ours.checkpoint_loaded(str(tmp_path / "ckpt"))
    ours.iteration_begin(ALONE, 4, training=False)
    ours.operation_begin(FORWARD)
    assert session.told == []
    for training in (True, False):
        ours.iteration_begin(ALONE, 4, training)
    ours.operation_begin(FORWARD)
    ours.operation_end(FORWARD)
    ours.iteration_end()
    ours.checkpoint_saved("later")
    assert session.told == [
        ("attach", ALONE, tmp_path / "ckpt" / "perseus_ds", 0),
        ("iteration_begin", 4, True),
        ("iteration_begin", 4, False),
        ("operation_begin", FORWARD),
        ("operation_end", FORWARD),
        ("iteration_end",),
        ("save", Path("later/perseus_ds")),
    ]


def test_the_first_configuration_counts(ours, tmp_path):
    ours.configure(Config(run_dir=tmp_path / "second"))
    ours.framework_configured({"run_dir": str(tmp_path / "third")}, "ds.json")
    assert ours.config.run_dir == tmp_path


def test_without_a_file_the_framework_s_configuration_counts(tmp_path):
    ours = PerseusListener()
    ours.framework_configured(None, "ds.json")
    assert ours.config is None
    ours.framework_configured({"run_dir": str(tmp_path)}, "ds.json")
    assert ours.config.run_dir == tmp_path


def test_a_wrong_section_ends_the_program_with_one_line(capsys):
    with pytest.raises(SystemExit) as ended:
        PerseusListener().framework_configured({"run_dri": "runs"}, "ds.json")
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("perseus_ds: ")
    assert "run_dri" in line


@pytest.mark.parametrize(
    "section",
    [
        {"profiling": {"profile": "missing.csv"}},
        {"simulator": {"profile": "missing.csv"}},
        {"simulator": {"pipeline_profiles": ["missing.csv"]}},
    ],
)
def test_files_that_are_missing_are_told_before_any_training(tmp_path, section):
    with pytest.raises(PerseusError, match=r"missing\.csv"):
        PerseusListener().configure(Config(run_dir=tmp_path, **section))


def test_the_run_directory_is_the_first_rank_s_to_write(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    config = Config(run_dir=tmp_path / "file")
    with pytest.raises(PerseusError, match="file"):
        PerseusListener().configure(config)
    monkeypatch.setenv("RANK", "1")
    PerseusListener().configure(config)


def test_who_is_not_configured_is_told_once_and_trains_without(session, log_lines):
    ours = PerseusListener()
    for _ in range(2):
        ours.iteration_begin(ALONE, 4, training=True)
    assert session.told == []
    assert ["[not-configured]" in line for line in log_lines.messages] == [True]


def test_a_script_that_trains_no_pipeline_is_told_so_on_the_first_rank(ours, log_lines, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    PerseusListener().tell_if_idle()
    assert log_lines.messages == []
    monkeypatch.delenv("RANK")
    ours.tell_if_idle()
    assert ["[nothing-seen]" in line for line in log_lines.messages] == [True]


def test_a_script_that_trained_is_told_nothing(ours, session, log_lines):
    ours.iteration_begin(ALONE, 4, training=True)
    ours.tell_if_idle()
    session.errors["operation_begin"] = RemoteError("rank 1 failed")
    ours.operation_begin(FORWARD)
    ours.tell_if_idle()
    assert ["[switched-off]" in line for line in log_lines.messages] == [True]


def test_after_an_error_the_others_are_told_the_clocks_reset_and_the_training_goes_on(
    ours, session, log_lines, tmp_path
):
    ours.iteration_begin(ALONE, 4, training=True)
    session.errors = {"operation_begin": ValueError("a bug"), "pause": OSError("no bus"), "close": OSError("no keeper")}
    ours.operation_begin(FORWARD)
    ours.operation_end(FORWARD)
    ours.iteration_begin(ALONE, 4, training=True)
    assert session.names == ["attach", "iteration_begin", "operation_begin", "pause", "close"]
    (line,) = [line for line in log_lines.messages if "[switched-off]" in line]
    assert "ValueError: a bug" in line
    assert str(tmp_path / "error-rank-0.txt") in line
    assert "ValueError: a bug" in (tmp_path / "error-rank-0.txt").read_text()


def test_who_cannot_attach_trains_without(ours, session, log_lines):
    session.errors["attach"] = OSError("no GPU")
    for _ in range(2):
        ours.iteration_begin(ALONE, 4, training=True)
    assert session.names == ["attach"]
    assert ours.session is None
    assert ["OSError: no GPU" in line for line in log_lines.messages] == [True]


def test_an_attempt_that_fails_is_repeated_some_iterations_later_until_there_were_too_many(ours, session, log_lines):
    session.errors["attach"] = AttachFailed("no GPU", OSError("no GPU"))
    for _ in range(60):
        ours.iteration_begin(ALONE, 4, training=False)
        ours.iteration_begin(ALONE, 4, training=True)
    assert [attempt for *_, attempt in session.told] == [0, 1, 2, 3]
    told = [line.rsplit(" ", 1)[1] for line in log_lines.messages]
    assert told == ["[attach-again]"] * 3 + ["[switched-off]"]
    assert "it tries again in 10 iterations" in log_lines.messages[0]


def test_a_later_attempt_that_succeeds_is_as_good_as_the_first(ours, session):
    session.errors["attach"] = AttachFailed("no GPU", OSError("no GPU"))
    ours.iteration_begin(ALONE, 4, training=True)
    session.errors.clear()
    for _ in range(12):
        ours.iteration_begin(ALONE, 4, training=True)
    assert session.names == ["attach", "attach", *["iteration_begin"] * 3]


def test_what_the_user_has_to_mend_is_not_tried_again(ours, session, log_lines):
    session.errors["attach"] = AttachFailed("500 MHz is not a clock [profile-clock]")
    for _ in range(20):
        ours.iteration_begin(ALONE, 4, training=True)
    assert session.names == ["attach"]
    assert ["[switched-off]" in line for line in log_lines.messages] == [True]


def test_sigterm_reaches_the_session_before_the_program_s_own_handler(ours, session):
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append(session.names[-1]))
    try:
        ours.iteration_begin(ALONE, 4, training=True)
        signal.raise_signal(signal.SIGTERM)
        assert heard == ["told_to_end"]
        own = signal.signal(signal.SIGTERM, lambda *_: heard.append("a later one"))
        ours.iteration_begin(ALONE, 4, training=True)
        signal.raise_signal(signal.SIGTERM)
        assert heard[1:] == ["a later one"]
        assert session.names[-1] == "told_to_end"
        ours.unhooked()
        signal.raise_signal(signal.SIGTERM)
        assert heard[2:] == ["a later one"]
        assert own is not signal.getsignal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_without_a_handler_sigterm_is_left_alone(ours):
    before = signal.getsignal(signal.SIGTERM)
    ours.iteration_begin(ALONE, 4, training=True)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("error", "rank", "told"),
    [
        (ValueError("mine"), "1", True),
        (PerseusError("round-overdue", timeout_s=2.0), "1", False),
        (PerseusError("round-overdue", timeout_s=2.0), "0", True),
        (RemoteError("rank 3 failed"), "1", False),
        (RemoteError("rank 3 failed"), "0", True),
        (PerseusError("failed-elsewhere", ranks="rank 3"), "1", False),
        (PerseusError("failed-elsewhere", ranks="rank 3"), "0", True),
    ],
    ids=str,
)
def test_an_error_is_told_by_the_rank_that_has_it(ours, session, log_lines, monkeypatch, error, rank, told):
    monkeypatch.setenv("RANK", rank)
    ours.iteration_begin(ALONE, 4, training=True)
    session.errors["iteration_end"] = error
    ours.iteration_end()
    assert any("[switched-off]" in line for line in log_lines.messages) == told
    assert session.names[-2:] == ["pause", "close"]


def test_after_a_failure_that_it_survives_the_session_goes_on_with_the_next_iteration(ours, session, log_lines):
    session.pauses = True
    ours.iteration_begin(ALONE, 4, training=True)
    session.errors["operation_begin"] = ValueError("a bug")
    ours.operation_begin(FORWARD)
    session.errors.clear()
    ours.operation_end(FORWARD)
    ours.iteration_end()
    ours.iteration_begin(ALONE, 4, training=True)
    ours.operation_begin(FORWARD)
    assert session.names == ["attach", *["iteration_begin", "operation_begin", "pause"], *session.names[1:3]]
    assert ["[paused]" in line and "ValueError: a bug" in line for line in log_lines.messages] == [True]


def test_a_pause_that_another_rank_has_caused_is_told_there(ours, session, log_lines):
    session.pauses = True
    ours.iteration_begin(ALONE, 4, training=True)
    session.errors["iteration_begin"] = PerseusError("failed-elsewhere", ranks="rank 3")
    ours.iteration_begin(ALONE, 4, training=True)
    assert log_lines.messages == []


def test_an_iteration_whose_begin_fails_begins_alone(ours, session, log_lines):
    session.pauses = True
    session.errors["iteration_begin"] = PerseusError("round-overdue", timeout_s=2.0)
    ours.iteration_begin(ALONE, 4, training=True)
    ours.operation_begin(FORWARD)
    assert session.names == ["attach", "iteration_begin", "pause", "begin_alone", "operation_begin"]
    assert ["[paused]" in line for line in log_lines.messages] == [True]


def test_ranks_that_do_not_answer_are_a_cause_of_its_own(ours, session, log_lines):
    session.errors["attach"] = TimeoutError()
    ours.iteration_begin(ALONE, 4, training=True)
    assert any("the other ranks did not answer within bus_timeout_s" in line for line in log_lines.messages)


@pytest.fixture
def installed(monkeypatch) -> list:
    """What ``start`` installs patches with; nothing is patched."""
    calls: list = []
    monkeypatch.setattr(listener, "_listener", None)
    monkeypatch.setattr("perseus_ds.patches.install_all", lambda ours, on_unsupported: calls.append(on_unsupported))
    return calls


def test_patches_are_installed_once_and_the_configuration_may_come_later(installed, session, tmp_path, log_lines):
    order = Order("straggler", 0, 1.3)
    listener.place_order(order)
    listener.script_ended()
    listener.start(None)
    listener.place_order(order)
    listener.script_ended()
    listener.start(Config(run_dir=tmp_path, on_unsupported="warn"))
    assert installed == ["error"]
    assert ["[not-configured]" in line for line in log_lines.messages] == [True]
    listener._listener.iteration_begin(ALONE, 4, training=True)
    listener.place_order(order)
    assert session.told[-1] == ("place", order)


def test_the_configuration_says_what_becomes_of_unsupported_frameworks(installed, tmp_path):
    listener.start(Config(run_dir=tmp_path, on_unsupported="warn"))
    assert installed == ["warn"]


def test_the_environment_switches_everything_off(installed, monkeypatch, tmp_path, log_lines):
    monkeypatch.setenv(listener.DISABLE_VARIABLE, "1")
    listener.start(Config(run_dir=tmp_path))
    assert installed == []
    assert ["[disabled]" in line for line in log_lines.messages] == [True]
    monkeypatch.setenv(listener.DISABLE_VARIABLE, "0")
    listener.start(Config(run_dir=tmp_path))
    assert installed == ["error"]


# The rank registers what closes its clock keeper while it attaches.
SCRIPT = """
import atexit, sys
from pathlib import Path
from types import SimpleNamespace

def attach(config, topology, checkpoint, attempt):
    atexit.register(print, "keeper")
    return SimpleNamespace(iteration_begin=lambda *_: None, close=lambda: print("rank"))

sys.modules["perseus_ds.runtime.attach"] = SimpleNamespace(attach=attach)
from perseus_ds.config import Config
from perseus_ds.pipeline.events import Topology
from perseus_ds.runtime.listener import PerseusListener

runtime = PerseusListener()
runtime.config = Config(run_dir=Path("unused"))
runtime.iteration_begin(Topology(0, 1, 0, 1, 0, 1), 1, True)
"""


def test_at_exit_the_rank_closes_before_its_keeper_so_that_its_last_words_are_heard():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["rank", "keeper"], done.stderr
