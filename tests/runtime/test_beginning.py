"""When a rank attaches, and when it tries again."""

import pytest

from perseus_ds.messages import PerseusError
from perseus_ds.runtime.beginning import AttachFailed, Beginning


def attempts_at(iterations: int, attempts: int) -> list[int]:
    """The iterations at which a rank attaches whose attempts all fail."""
    beginning, tried, over = Beginning(), [], False
    for iteration in range(iterations):
        if not over and beginning.is_due():
            tried.append(iteration)
            over = beginning.again(attempts) is None
    assert beginning.attempt == len(tried)
    return tried


@pytest.mark.parametrize(("attempts", "tried"), [(0, [0]), (1, [0, 10]), (3, [0, 10, 20, 30])])
def test_it_tries_with_the_first_iteration_and_every_ten_until_it_has_failed_too_often(attempts, tried):
    assert attempts_at(60, attempts) == tried


@pytest.mark.parametrize(
    ("cause", "lasts"),
    [
        ("no clock; profile this GPU model [profile-clock]", True),
        ("failure on b: no such directory [run-dir-not-writable]; see there [failed-elsewhere]", True),
        ("not all ranks have answered [round-overdue]", False),
        ("ValueError: a bug", False),
    ],
)
def test_what_the_user_has_to_mend_lasts(cause, lasts):
    assert AttachFailed(cause).lasts == lasts


def test_a_rank_without_an_error_of_its_own_has_met_another_rank_s():
    met = AttachFailed("no GPU").error
    assert isinstance(met, PerseusError)
    assert (met.code, "no GPU" in str(met)) == ("failed-elsewhere", True)
    own = OSError("no GPU")
    assert AttachFailed("no GPU", own).error is own
