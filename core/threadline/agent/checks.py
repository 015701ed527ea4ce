"""Whether a call may run as it was made: its input, and its times under ``as_of``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from threadline.agent.output import clean_text
from threadline.agent.schema import Problem
from threadline.agent.times import time_problems
from threadline.clock import iso

if TYPE_CHECKING:
    from datetime import datetime

    from threadline.agent.tools import Tool

__all__ = ["Refused", "check"]

_MOST_PROBLEMS = 10


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a call does not run: a result's code, a sentence, and what is wrong where."""

    code: str
    sentence: str
    problems: Sequence[Problem]


def check(tool: Tool, value: Any, as_of: datetime | None = None) -> BaseModel | Refused:
    """Return a call's validated arguments, or why it may not run.

    The codes are ``invalid_input`` and ``time_not_allowed``. Raises what a validator raises.
    """
    try:
        model = tool.validate(value)
    except ValidationError as error:
        return _invalid(tool, error)
    if as_of is None:
        return model
    found = time_problems(model, value, as_of, tool.time_arguments)
    return _untimely(tool, found, as_of) if found else model


def _invalid(tool: Tool, error: ValidationError) -> Refused:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    problems = [_problem(tool, dict(problem)) for problem in found]
    said = _said([f"{p.path}: {p.message}" if p.path else p.message for p in problems])
    return Refused(
        "invalid_input", f'The input of tool "{tool.name}" is not valid: {said}', problems
    )


def _untimely(tool: Tool, problems: Sequence[Problem], as_of: datetime) -> Refused:
    said = _said([f"{problem.path} {problem.message}" for problem in problems])
    sentence = f'Tool "{tool.name}" did not run, because this runs as of {iso(as_of)}: {said}'
    return Refused("time_not_allowed", clean_text(sentence), problems)


def _said(problems: Sequence[str]) -> str:
    shown = list(problems[:_MOST_PROBLEMS])
    if len(problems) > _MOST_PROBLEMS:
        shown.append(f"and {len(problems) - _MOST_PROBLEMS} more")
    return "; ".join(shown) + "."


def _problem(tool: Tool, problem: Mapping[str, Any]) -> Problem:
    path = clean_text(".".join(str(part) for part in problem["loc"]))
    match problem["type"]:
        case "missing":
            return Problem(path, "is required")
        case "extra_forbidden" if len(problem["loc"]) == 1:
            known = ", ".join(tool.fields) or "none"
            return Problem(path, f"is not an argument (there are: {known})")
        case "model_type":
            return Problem(path or "input", "should be an object")
        case _:
            return Problem(path, clean_text(problem["msg"]))
