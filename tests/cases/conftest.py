"""Collects the cases, and says at the end how many were not covered."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from threadline.channel import installed

for _module in ("judges", "github_world", "served", "slack_world"):
    pytest.register_assert_rewrite(f"tests.cases.{_module}")

OWN = Path(__file__).parent / "cases.jsonl"
NOT_COVERED = "not covered: "


_OFFERS = functools.cache(installed._offers)


@pytest.fixture(autouse=True)
def _offers_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each host start without looking through all installed packages: there are hundreds."""
    monkeypatch.setattr(installed, "_offers", _OFFERS)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take ``--cases FILE``."""
    parser.addoption("--cases", default=str(OWN), help="a file of cases, one JSON object a line")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Count what was not covered."""
    reasons = list(_reasons(terminalreporter.stats.get("skipped", [])))
    steps = list(_steps(terminalreporter.stats.get("passed", [])))
    if steps:
        terminalreporter.write_sep("-", f"cases: {len(steps)} steps not covered")
        for step in steps:
            terminalreporter.write_line(step)
    if reasons:
        terminalreporter.write_sep("-", f"cases: {len(reasons)} not covered")
        for reason in reasons:
            terminalreporter.write_line(reason)


def _steps(reports: list[Any]) -> Iterator[str]:
    """Yield the steps that a case which passed could not take."""
    for report in reports:
        for name, step in report.user_properties:
            if name == NOT_COVERED:
                yield f"{report.nodeid.partition('[')[2].rstrip(']')}: {step}"


def _reasons(reports: list[Any]) -> Iterator[str]:
    for report in reports:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        if NOT_COVERED in reason:
            case = report.nodeid.partition("[")[2].rstrip("]")
            yield f"{case}: {reason.partition(NOT_COVERED)[2]}"
