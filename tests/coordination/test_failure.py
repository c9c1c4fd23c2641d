"""Errors that travel instead of values."""

import pickle

import pytest

from perseus_ds.coordination.failure import Failure, attempt, value_of
from perseus_ds.messages import PerseusError, RemoteError


def test_a_value_comes_through_as_it_is():
    assert value_of(attempt(lambda: [1, None])) == [1, None]


def test_an_error_is_raised_where_it_arrives_with_where_it_happened():
    sent = pickle.loads(pickle.dumps(attempt(lambda: 1 / 0)))
    with pytest.raises(RemoteError, match=r"^ZeroDivisionError: division by zero$") as caught:
        value_of(sent)
    assert "test_failure.py" in str(caught.value.__cause__)


def test_our_own_messages_stay_as_they_are():
    error = PerseusError("broadcast-damaged")
    assert Failure.of(error).line == " ".join(str(error).split())


def test_the_end_of_the_process_is_no_failure_to_send():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attempt(interrupted)
