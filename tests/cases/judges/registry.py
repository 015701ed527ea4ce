"""Which judge knows what a case expects, by its id."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

__all__ = ["JUDGES", "Case", "judge", "steps_of"]

Case = Mapping[str, Any]
W = TypeVar("W")
JUDGES: dict[str, Callable[..., Awaitable[None]]] = {}


def judge(
    case_id: str,
) -> Callable[
    [Callable[[W, Case, Any], Awaitable[None]]], Callable[[W, Case, Any], Awaitable[None]]
]:
    """Register what a case expects of a world, and of one of the case's variants."""

    def register(
        function: Callable[[W, Case, Any], Awaitable[None]],
    ) -> Callable[[W, Case, Any], Awaitable[None]]:
        JUDGES[case_id] = function
        return function

    return register


def steps_of(case: Case) -> list[Mapping[str, Any]]:
    """Return the steps of a case in the order of their times; one request is one step."""
    steps = case.get("steps") or [{"do": "post", "at_s": 0, **case}]
    return sorted(steps, key=lambda step: float(step.get("at_s", 0)))
