"""What the pages of Slack and GitHub show works as it stands."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from threadline import Channel
from threadline.agent.tools import Tool
from threadline_github import GitHubChannel
from threadline_slack import SlackChannel

DOCS = Path(__file__).parents[2] / "docs"
KINDS: dict[str, type[Channel]] = {"slack": SlackChannel, "github": GitHubChannel}
PAGES = [(kind, page) for kind in KINDS for page in sorted(DOCS.glob(f"{kind}*.md"))]
BLOCKS = [
    pytest.param(kind, text, id=f"{page.stem}-{number}")
    for kind, page in PAGES
    for number, text in enumerate(
        re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    )
]


@pytest.mark.parametrize(("kind", "text"), BLOCKS)
async def test_an_example_runs(kind: str, text: str) -> None:
    found: dict[str, Any] = {}
    exec(compile(text, "page", "exec"), found)
    if "/channels/" in text.partition("\n")[0]:
        assert isinstance(found["channel"], KINDS[kind])
    if "/tools/" in text.partition("\n")[0]:
        assert any(isinstance(made, Tool) for made in found.values())
    for name, made in found.items():
        if name.startswith("test_") and inspect.iscoroutinefunction(made):
            await made()


@pytest.mark.parametrize("kind", KINDS)
def test_the_pages_lead_to_each_other(kind: str) -> None:
    start = (DOCS / f"{kind}.md").read_text("utf-8")
    pages = [page.name for one, page in PAGES if one == kind]
    assert len(pages) > 1
    for page in pages:
        assert page == f"{kind}.md" or f"]({page})" in start, page
