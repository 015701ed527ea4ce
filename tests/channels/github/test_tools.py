"""The ready tools: each is found in a file of its own, and the model is told what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from threadline import Agent
from threadline.project import load_project
from threadline_github.outbound.tools import report_check, review_pull_request, set_labels

CONTEXT: Any = None  # none of them asks for it
NAMES = ["report_check", "review_pull_request", "set_labels"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    tools = tmp_path / "reviewer" / "agent" / "tools"
    tools.mkdir(parents=True)
    (tools.parent / "agent.py").write_text("from threadline import Agent\n\nagent = Agent()\n")
    (tools.parent / "instructions.md").write_text("Review.\n")
    for name in NAMES:
        line = f"from threadline_github import {name}\n"
        (tools / f"{name}.py").write_text(line)
    return tools.parent.parent


def test_a_file_with_an_import_is_a_tool(project: Path) -> None:
    loaded = load_project(project)
    infos = {info.name: info for info in loaded.tools.infos()}
    assert sorted(name for name in infos if name in NAMES) == NAMES
    assert all(infos[name].effect == "read" for name in NAMES)


def test_they_may_be_given_to_an_agent_in_code() -> None:
    agent = Agent(instructions="x", tools=[report_check, review_pull_request, set_labels])
    assert [tool.name for tool in agent.tools] == NAMES


def test_the_model_is_told_of_each_argument() -> None:
    schema: Any = review_pull_request.input_schema
    assert "comments on its lines" in review_pull_request.description
    assert set(schema["properties"]) == {"body", "event", "comments"}
    assert all("description" in one for one in schema["properties"].values())
    assert "required" not in schema


async def test_a_review_says_what_is_to_be_posted() -> None:
    finding = {"path": "a.py", "line": 2, "body": "Why?"}
    given = review_pull_request.arguments({"body": "Fine.", "comments": [finding]}, CONTEXT)
    review = await review_pull_request(**given)
    assert review.model_dump(mode="json") == {
        "type": "github_review",
        "body": "Fine.",
        "event": "COMMENT",
        "comments": [finding | {"side": "RIGHT", "start_line": None}],
    }


async def test_a_check_and_labels_say_so_too() -> None:
    given = {"conclusion": "failure", "title": "1 problem", "summary": "See below."}
    check = await report_check(**report_check.arguments(given, CONTEXT))
    assert (check.type, check.conclusion) == ("github_check", "failure")
    labels = await set_labels(**set_labels.arguments({"add": ["bug"]}, CONTEXT))
    assert (labels.type, labels.add, labels.remove) == ("github_labels", ["bug"], [])
