"""How often a thread waits for the device, counted on torch without a GPU."""

import threading

import pytest
import torch

from perseus_ds.silicon.cuda_network import count_waits


@pytest.fixture(autouse=True)
def modes(monkeypatch):
    told = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", told.append)
    monkeypatch.setattr(torch.cuda.Event, "synchronize", lambda event: None)
    return told


def test_only_waits_of_this_thread_count(modes):
    event = object.__new__(torch.cuda.Event)

    def both() -> None:
        event.synchronize()
        other = threading.Thread(target=event.synchronize)
        other.start()
        other.join()

    assert count_waits(both) == 1
    assert count_waits(lambda: None) == 0
    assert modes == ["error", "default"] * 2


def test_the_mode_is_put_back_whatever_happens(modes):
    with pytest.raises(ValueError, match="broken"):
        count_waits(lambda: (_ for _ in ()).throw(ValueError("broken")))
    assert modes == ["error", "default"]
