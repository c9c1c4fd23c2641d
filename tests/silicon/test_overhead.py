"""What a rank that observes adds to a step: nothing on the virtual stream, and told where it adds something."""

import pytest

from perseus_ds.silicon import overhead as module
from perseus_ds.silicon.lone_session import observing
from perseus_ds.silicon.overhead import cost, growth_blocks, judge


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(module, "_PAIRS", 20)
    monkeypatch.setattr(module, "_ITERATIONS", 400)


@pytest.fixture
def rank(make_lab, tmp_path):
    lab = make_lab()
    with observing(lab, tmp_path / "run") as session:
        yield lab, session


def test_a_rank_that_observes_adds_nothing(rank):
    outcome = judge({100: cost(*rank, 100)}, growth_blocks(*rank))
    assert outcome.passed, outcome.why


def test_a_hook_that_waits_is_told(rank, monkeypatch):
    lab, session = rank
    monkeypatch.setattr(session, "iteration_end", lab.synchronize)
    monkeypatch.setattr(session, "iteration_begin", lambda *_, **__: None)
    why = judge({100: cost(lab, session, 100)}, 0).why
    assert "20 waits were added to 20 steps" in why


def test_a_hook_that_works_on_the_device_is_told(rank, monkeypatch):
    lab, session = rank
    monkeypatch.setattr(session, "iteration_end", lambda: lab.network().run(1))
    assert "may take 1.04% longer, limit 0.2 %" in judge({100: cost(lab, session, 100)}, 0).why


def test_a_hook_that_changes_a_loss_is_told(rank, monkeypatch):
    lab, session = rank
    networks = []
    make, run = lab.network, module.step
    monkeypatch.setattr(lab, "network", lambda: networks.append(make()) or networks[-1])
    monkeypatch.setattr(module, "step", lambda network, *rest: (run(network, *rest), rest[1] and network.run(1)))
    assert "losses of steps of 100 kernels differ" in judge({100: cost(lab, session, 100)}, 0).why


def test_memory_that_grows_is_told(rank, monkeypatch):
    lab, session = rank
    kept, end = [], session.operation_end
    monkeypatch.setattr(session, "operation_end", lambda one: kept.append([object(), object()]) or end(one))
    assert "memory grew by" in judge({}, growth_blocks(lab, session)).why
