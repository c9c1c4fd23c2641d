"""The base of every section of the configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

__all__ = ["Section"]


class Section(BaseModel):
    """A section of the file: unknown keys are errors, numbers are finite, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _at_home(cls, value: Any) -> Any:
        """Expand a leading ``~`` as a shell does: only paths begin with one here."""
        if isinstance(value, tuple):
            return tuple(cls._at_home(one) for one in value)
        if not isinstance(value, str | Path) or not str(value).startswith("~"):
            return value
        expanded = os.path.expanduser(value)
        if expanded.startswith("~"):
            raise ValueError("there is no such home directory; write the path in full")
        return type(value)(expanded)
