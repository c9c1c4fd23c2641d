"""Writes the generated pages and pictures. Run it after a change of configuration or messages."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from perseus_ds.config import Config
from perseus_ds.messages import CATALOGUE
from perseus_ds.silicon.page import page

DOCS = Path(__file__).parent
_BOUNDS = (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤"))
_TYPES = {float: "number", int: "whole number", bool: "true or false", str: "text", Path: "path"}


def configuration() -> str:
    """Return the page of all configuration keys."""
    lines = [
        "# Configuration",
        "",
        'Pass one YAML file with `--perseus`, or write the same keys in a `"perseus"` section of the DeepSpeed JSON.',
        "Only `run_dir` is required. Unknown keys and bad values stop the job before the training starts. A path may",
        "begin with `~`, your home directory. This page is generated from `perseus_ds/config/model.py`.",
        "",
        "```yaml",
        "run_dir: runs/my-run",
        "```",
        "",
        *_section("", Config),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _section(path: str, model: type[BaseModel]) -> Iterator[str]:
    subsections = []
    if path:
        yield f"## `{path}`"
        yield ""
        yield " ".join((model.__doc__ or "").split("\n\n")[0].split())
        yield ""
    yield "| key | value | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for name, field in model.model_fields.items():
        inner = _model_of(field.annotation)
        if inner is not None:
            subsections.append((f"{path}.{name}" if path else name, inner))
        yield f"| `{name}` | {_value(field, path, name)} | {_default(field)} | {_cell(field.description or '')} |"
    yield ""
    for inner_path, inner in subsections:
        yield from _section(inner_path, inner)


def _model_of(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _value(field: FieldInfo, path: str, name: str) -> str:
    if _model_of(field.annotation) is not None:
        anchor = (f"{path}.{name}" if path else name).replace(".", "")
        listed = "list of sections" if get_origin(field.annotation) is tuple else "section"
        return f"[{listed}](#{anchor})"
    bounds = [
        f"{sign} {getattr(one, attribute):g}"
        for one in field.metadata
        for attribute, sign in _BOUNDS
        if getattr(one, attribute, None) is not None
    ]
    return ", ".join([_type(field.annotation), *bounds])


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join("nothing" if one is type(None) else _type(one) for one in arguments)
    if origin is tuple:
        return f"list of {_type(arguments[0])}s"
    return _TYPES.get(annotation, str(annotation))


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None or field.default == ():
        return ""
    if field.default is PydanticUndefined:
        return "**required**"
    if field.default is None:
        return "nothing"
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def troubleshooting() -> str:
    """Return the page of all messages."""
    lines = [
        "# Troubleshooting",
        "",
        "Every message of Perseus ends with a code in brackets. Find the code here. `perseus-ds doctor` finds most",
        "causes before a job starts.",
        "",
        "An error inside Perseus never stops the training. Perseus pauses on all ranks, resets the clocks, and comes",
        "back once all ranks answer. Too many failures in a short time end it for good; `perseus-ds status` says so.",
        "The traceback is in `error-rank-N.txt` in the run directory.",
        "",
        "This page is generated from `perseus_ds/messages/`.",
        "",
    ]
    for code, message in sorted(CATALOGUE.items()):
        lines += [f"## {code}", "", _sentence(message.text), "", f"**What to do:** {_sentence(message.remedy)}", ""]
    return "\n".join(lines).rstrip() + "\n"


def _sentence(text: str) -> str:
    """Return a message as a sentence: capital, full stop, placeholders in italics, safe in Markdown."""
    first = text.split()[0]
    text = text if text.endswith((".", "?")) else f"{text}."
    text = text[0].upper() + text[1:] if first.rstrip(",:").isalpha() else text
    safe = text.replace("<", "&lt;").replace("*", "\\*")
    return re.sub(r"\{(\w+)[^}]*\}", lambda match: f"*{match[1].replace('_', ' ')}*", safe)


def silicon() -> str:
    """Return the page of the latest check of a GPU."""
    return page(json.loads((DOCS / "gpu-check.json").read_text(encoding="utf-8")))


PAGES = {"configuration.md": configuration, "silicon.md": silicon, "troubleshooting.md": troubleshooting}
"""Name of each generated page, and what writes it."""


def pictures() -> dict[str, str]:
    """Return the SVG pictures of "How it works": a plan made from the shipped GPT-3 175B profile."""
    from perseus_ds.frontier import Problem, evaluate, solve
    from perseus_ds.frontier.baselines import max_frequencies
    from perseus_ds.pipeline.schedules import schedule_dag
    from perseus_ds.profiling.table import read_profile
    from perseus_ds.report.svg import Axis, Chart
    from perseus_ds.report.timeline import timeline_chart, timeline_of
    from perseus_ds.runtime.simulation import profile_file

    profile = read_profile(profile_file("gpt3-175b-a100-sxm"))
    problem = Problem(schedule_dag("1f1b", profile.stages, 12), profile, 83.64)
    frontier = solve(problem)
    before = timeline_of(problem, evaluate(problem, max_frequencies(problem)))
    after = timeline_of(problem, frontier.plan(frontier.t_min_s))
    times_s = [frontier.t_min_s + share / 60 * (frontier.t_star_s - frontier.t_min_s) for share in range(61)]
    energies_j = [frontier.lower_bound_j(t_s) for t_s in times_s]
    chart = Chart(
        "Energy against iteration time",
        Axis.around("iteration time, s", times_s),
        Axis.around("energy of one pipeline's iteration, J", energies_j),
        width=760,
    )
    chart.line(zip(times_s, energies_j, strict=True), "bound")
    for text, t_s in (("T_min", frontier.t_min_s), ("T*", frontier.t_star_s)):
        chart.dot(t_s, frontier.lower_bound_j(t_s), "mark chosen", text, radius=6)
        chart.note(t_s, frontier.lower_bound_j(t_s), text)
    return {
        "before.svg": _alone(timeline_chart(before, "At the highest clock", before.time_s)),
        "after.svg": _alone(timeline_chart(after, "Under the plan", before.time_s)),
        "frontier.svg": _alone(chart.svg()),
    }


def _alone(svg: str) -> str:
    """Return an SVG that needs no page around it: with the report's own styles, on white."""
    page = (DOCS.parent / "perseus_ds" / "report" / "page.html").read_text(encoding="utf-8")
    styles = page[page.index("<style>") + 7 : page.index("</style>")]
    light = styles[: styles.index("@media")]
    marks = styles[styles.index("svg text") :]
    text = "text{font-family:system-ui,sans-serif}svg{background:#fff}"
    return svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(
        "><g", f"><style>{light}{marks}{text}</style><g", 1
    )


def main() -> None:
    """Write everything."""
    for name, write in PAGES.items():
        (DOCS / name).write_text(write(), encoding="utf-8")
    (DOCS / "pictures").mkdir(exist_ok=True)
    for name, picture in pictures().items():
        (DOCS / "pictures" / name).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
