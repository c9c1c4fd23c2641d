"""Reads and checks the YAML file. An error is one line that names file, key, value and remedy."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from perseus_ds.config.model import Config
from perseus_ds.console import log
from perseus_ds.files import read_text
from perseus_ds.messages import PerseusError, user_message
from perseus_ds.ranks import tells_for_all

__all__ = ["load_config", "parse_config"]

_RENAMED = {"profiling.max_slowdown": "profiling.max_instruction_slowdown"}
"""Old keys that still work, and their present names."""


def load_config(path: str | Path) -> Config:
    """Read and check a configuration file.

    Args:
        path: YAML file.

    Returns:
        The configuration.

    Raises:
        PerseusError: One line with file, key, value and the allowed values.
    """
    file = Path(path)
    try:
        text = read_text(file)
    except FileNotFoundError as error:
        raise PerseusError("config-missing", file=file) from error
    except OSError as error:
        raise PerseusError("config-unreadable", file=file, detail=error.strerror) from error
    except UnicodeDecodeError as error:
        line = 1 + error.object.count(b"\n", 0, error.start)
        raise PerseusError("config-not-yaml", file=file, detail=f"line {line} is not UTF-8") from error
    try:
        data = yaml.safe_load(text)
    except RecursionError as error:
        raise PerseusError("config-not-yaml", file=file, detail="nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2024-13-01
        raise PerseusError("config-not-yaml", file=file, detail=error) from error
    if data is None:
        raise PerseusError("config-empty", file=file)
    return parse_config(data, str(file))


def parse_config(data: Any, source: str) -> Config:
    """Check parsed configuration data.

    Args:
        data: Content of the YAML file or of the ``"perseus"`` section of a DeepSpeed JSON.
        source: Name of the file, for messages.

    Returns:
        The configuration.

    Raises:
        PerseusError: One line with file, key, value and the allowed values.
    """
    if not isinstance(data, dict):
        raise PerseusError("config-not-mapping", file=source, found=type(data).__name__)
    try:
        return Config.model_validate(_with_present_names(data, source))
    except ValidationError as error:
        raise _first_error(error, source) from error


def _with_present_names(data: dict[str, Any], source: str) -> dict[str, Any]:
    """Return the data with renamed keys under their present names; one rank warns once per key."""
    for old, new in _RENAMED.items():
        section, _, old_key = old.rpartition(".")
        values = data.get(section)
        if not isinstance(values, dict) or old_key not in values:
            continue
        new_key = new.rpartition(".")[2]
        renamed = {new_key if key == old_key else key: value for key, value in values.items()}
        if len(renamed) < len(values):  # both names are given: the unknown-key error names the old one
            continue
        data = {**data, section: renamed}
        if tells_for_all():
            log.warning("%s", user_message("config-renamed-key", file=source, old=old, new=new))
    return data


def _first_error(error: ValidationError, source: str) -> PerseusError:
    """Return pydantic's first error as one line."""
    mistakes = error.errors()
    # A misspelt key is the cause of a missing one: name it first.
    detail = next((mistake for mistake in mistakes if mistake["type"] == "extra_forbidden"), mistakes[0])
    path = detail["loc"]
    key = ".".join(str(part) for part in path)
    if detail["type"] == "extra_forbidden":
        return PerseusError("config-unknown-key", file=source, key=key, allowed=", ".join(_allowed_keys(path[:-1])))
    return PerseusError("config-bad-value", file=source, key=key, value=_shown(detail["input"]), detail=detail["msg"])


def _shown(value: Any) -> str:
    """Return a value for a message: a few lines of YAML can make one of gigabytes."""
    try:
        return reprlib.repr(value)
    except ValueError:  # a number of thousands of digits
        return f"this {type(value).__name__}"


def _allowed_keys(path: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the section at ``path``."""
    section: type[BaseModel] = Config
    for name in path:
        field = section.model_fields.get(str(name))
        section = next(_sections_in(field.annotation), section) if field else section
    return sorted(section.model_fields)


def _sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the sections that a key's type names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _sections_in(part)
