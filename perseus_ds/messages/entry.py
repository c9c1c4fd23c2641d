"""What a message to the user consists of."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["UserMessage"]


@dataclass(frozen=True)
class UserMessage:
    """One catalogue entry.

    Attributes:
        text: The problem, with ``{placeholders}`` for file, key, value.
        remedy: The user's next step, with the same placeholders.
    """

    text: str
    remedy: str
