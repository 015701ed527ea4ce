"""What docs/slack*.md shows works as it stands."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from threadline.agent.tools import Tool
from threadline_slack import SlackChannel

PAGES = sorted((Path(__file__).parents[2] / "docs").glob("slack*.md"))
BLOCKS = [
    pytest.param(text, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, text in enumerate(
        re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    )
]


@pytest.mark.parametrize("text", BLOCKS)
async def test_an_example_runs(text: str) -> None:
    found: dict[str, Any] = {}
    exec(compile(text, "page", "exec"), found)
    if "/channels/" in text.partition("\n")[0]:
        assert isinstance(found["channel"], SlackChannel)
    if "/tools/" in text.partition("\n")[0]:
        assert any(isinstance(made, Tool) for made in found.values())
    for name, made in found.items():
        if name.startswith("test_") and inspect.iscoroutinefunction(made):
            await made()


def test_the_pages_lead_to_each_other() -> None:
    start = (PAGES[0].parent / "slack.md").read_text("utf-8")
    for page in PAGES:
        assert page.name == "slack.md" or f"]({page.name})" in start, page.name
