"""docs/artifacts.md describes a project that works, and shows what a host really answers."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from threadline.agent.shelf import ContextArtifacts
from threadline.project import load_project
from threadline.testing import TestHost

PAGE = (Path(__file__).parents[2] / "docs" / "artifacts.md").read_text("utf-8")
KINDS, TOOL, CHANNEL = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
(ASKED,) = re.findall(r"^```bash\n(.*?)^```", PAGE, re.M | re.S)
(SHOWN,) = (json.loads(text) for text in re.findall(r"^```json\n(.*?)^```", PAGE, re.M | re.S))
AGENT = """
from threadline import Agent
from threadline.harness.scripted import Scripted

agent = Agent(harness=Scripted())
"""
SAY = """

@channel.post("/say")
async def say(ctx: RouteContext, body: dict[str, str]) -> None:
    await ctx.send(body["text"], continuation_token="t")
"""


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[TestHost]:
    """Serve the page's files as a project."""
    agent = tmp_path / "oncall" / "agent"
    files = {
        "agent.py": AGENT,
        "instructions.md": "Be brief.\n",
        "artifacts.py": KINDS,
        "tools/report_incident.py": TOOL,
        "channels/exports.py": CHANNEL + SAY,
    }
    for name, text in files.items():
        (agent / name).parent.mkdir(parents=True, exist_ok=True)
        (agent / name).write_text(text, "utf-8")
    async with TestHost(load_project(agent.parent), root=tmp_path / "state") as running:
        yield running


async def test_the_tool_makes_the_record_that_is_shown(host: TestHost) -> None:
    given = {"service": "checkout", "text": "It was the cache"}
    called = await host.post("/v1/tools/report_incident", json={"input": given})
    assert called.status == 200, called.text
    command = ASKED.replace("http://127.0.0.1:3000", host.url).split()
    run = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=True, timeout=30
    )
    (record,), (shown,) = json.loads(run.stdout)["artifacts"], SHOWN["artifacts"]
    made = {key: record[key] for key in ("id", "createdAt", "updatedAt", "contentUrl")}
    assert record == shown | made
    assert len(record["id"]) == len(shown["id"])
    assert record["contentUrl"] == f"{host.url}/v1/artifacts/{record['id']}/content"
    assert called.json()["result"] == f"The report is at {record['contentUrl']}"


async def test_the_channel_keeps_answers(host: TestHost) -> None:
    said = await host.post("/v1/channels/exports/say", json={"text": "done"})
    assert said.status == 200, said.text

    async def kept() -> list[str]:
        answer = await host.get("/v1/channels/exports/exports")
        return list(answer.json()["urls"])

    urls = await host.until(kept, "the export")
    (url,) = urls
    fetched = await host.get(url.removeprefix(host.url))
    assert (fetched.status, fetched.text) == (200, "done")


def test_every_call_and_option_is_named() -> None:
    for name, value in vars(ContextArtifacts).items():
        assert name.startswith("_") or not callable(value) or f"`{name}(" in PAGE, name
    table = PAGE.partition("| option |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.M) == ["kinds", "agent_tool", "max", "max_bytes"]
