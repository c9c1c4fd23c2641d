"""Which rank this process is."""

import pytest

from perseus_ds.ranks import rank, tells_for_all


@pytest.mark.parametrize(("given", "number"), [("0", 0), ("3", 3), ("", 0), ("first", 0)])
def test_the_launcher_says_which_rank_this_is(monkeypatch, given, number):
    monkeypatch.setenv("RANK", given)
    assert rank() == number
    assert tells_for_all() == (number == 0)


def test_without_a_launcher_it_is_the_first(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert (rank(), tells_for_all()) == (0, True)
