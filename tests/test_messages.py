"""Every message that a user can meet: in the catalogue, on one line, with a remedy, and used."""

import ast
import re
from pathlib import Path

import pytest

from perseus_ds.messages import CATALOGUE, PerseusError, user_message

ROOT = Path(__file__).parents[1]
SOURCES = list((ROOT / "perseus_ds").rglob("*.py"))
CODE = re.compile(r"[a-z]+(-[a-z]+)*")
RAISERS = ("PerseusError", "user_message")


def texts_and_codes() -> tuple[set[str], set[str]]:
    """All texts of the sources that look like codes, and those that stand where a code must."""
    texts, codes = set(), set()
    for path in SOURCES:
        if path.parent.name == "messages":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
                texts.add(node.value)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in RAISERS and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant):
                    codes.add(first.value)
    return texts, codes


def placeholders(code: str) -> set[str]:
    entry = CATALOGUE[code]
    return set(re.findall(r"\{(\w+)", entry.text + entry.remedy))


def test_every_code_that_is_used_has_an_entry():
    _, codes = texts_and_codes()
    assert codes - CATALOGUE.keys() == set()
    assert len(codes) > 40


def test_every_entry_is_used():
    texts, _ = texts_and_codes()
    assert CATALOGUE.keys() - texts == set()


@pytest.mark.parametrize("code", CATALOGUE)
def test_a_message_is_one_line_with_remedy_and_code_whatever_is_put_in(code):
    entry = CATALOGUE[code]
    numbers = set(re.findall(r"\{(\w+):", entry.text + entry.remedy))
    values = {name: 1.5 if name in numbers else "two\nlines" for name in placeholders(code)}
    line = str(PerseusError(code, **values))
    assert "\n" not in line
    assert line == user_message(code, **values)
    assert line.endswith(f"[{code}]")
    what, _, remedy = line.removesuffix(f" [{code}]").partition("; ")
    assert what
    assert remedy


def test_every_call_gives_what_its_entry_needs():
    missing = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") in RAISERS and node.args):
                continue
            first = node.args[0]
            if isinstance(first, ast.Constant) and all(keyword.arg for keyword in node.keywords):
                given = {keyword.arg for keyword in node.keywords}
                if lacking := placeholders(first.value) - given:
                    missing.append(f"{path.name}:{node.lineno}: {first.value} lacks {sorted(lacking)}")
    assert missing == []
