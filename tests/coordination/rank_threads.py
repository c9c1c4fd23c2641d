"""Ranks as threads: what meets through a store need not be in processes of its own."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def on_ranks(count: int, call: Callable[[int], Result]) -> list[Result]:
    """Call ``call(rank)`` on all ranks at once; returns what it returns, by rank."""
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(call, range(count)))
