"""Ranks that meet in a store, however late some come, or that are told that it is over."""

import threading

import torch.distributed as dist
from rank_threads import on_ranks

from perseus_ds.coordination.rendezvous import Vote, call_off, meet, own_connection


def test_all_wait_for_the_last_one_and_each_meeting_is_one_of_its_own():
    store, last_is_there, closed = dist.HashStore(), threading.Event(), threading.Event()
    before: list[bool] = []

    def come(rank: int) -> list[str | None]:
        if rank == 2:
            threading.Event().wait(0.3)
            last_is_there.set()
        first = meet(own_connection(store), 1, 3, closed)
        before.append(last_is_there.is_set())
        return [first, meet(own_connection(store), 2, 3, closed)]

    assert on_ranks(3, come) == [[None, None]] * 3
    assert before == [True] * 3


def test_who_comes_to_a_meeting_called_off_is_told_why_and_the_next_one_is_off_too():
    store, closed = dist.HashStore(), threading.Event()
    call_off(store, 1, "too often")
    assert [meet(store, number, 3, closed) for number in (1, 2)] == ["too often"] * 2


def test_a_meeting_that_has_taken_place_cannot_be_called_off():
    store, closed = dist.HashStore(), threading.Event()
    assert meet(store, 1, 1, closed) is None
    call_off(store, 1, "too late")
    assert meet(store, 1, 9, closed) is None
    assert meet(store, 2, 1, closed) == "too late"


def test_closed_nobody_waits_any_more():
    closed = threading.Event()
    closed.set()
    assert meet(dist.HashStore(), 1, 2, closed) == ""


def test_all_ranks_attach_once_the_last_one_has_voted():
    store = dist.HashStore()
    assert on_ranks(3, lambda _: Vote(store, 0).accept(3, 10.0)) == [None] * 3
    assert Vote(store, 0).rejected() is None


def test_one_vote_against_it_counts_for_all_and_the_first_cause_with_it():
    store = dist.HashStore()
    assert Vote(store, 0).rejected() is None
    assert Vote(store, 0).reject("no GPU") == "no GPU"
    assert Vote(store, 0).reject("no time") == "no GPU"
    assert on_ranks(2, lambda _: Vote(store, 0).accept(3, 10.0)) == ["no GPU"] * 2
    assert Vote(store, 0).rejected() == "no GPU"
    assert Vote(store, 1).rejected() is None


def test_who_waits_too_long_votes_against_it():
    assert (
        on_ranks(2, lambda _: Vote(dist.HashStore(), 0).accept(2, 0.05)) == ["not all ranks have attached in time"] * 2
    )
