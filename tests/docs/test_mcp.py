"""docs/mcp.md: what it shows runs; what needs Node or Claude Code, in tests/real/test_mcp.py."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.channels.mcp.talking import connected
from tests.host.serving import Gate, agent, serve

from threadline import Channel

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "mcp.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.M | re.S)
PORT = "http://127.0.0.1:3000"


def shown(language: str) -> list[str]:
    """Return the page's blocks of one language."""
    return [text for kind, text in BLOCKS if kind == language]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The on-call example, served as the page says, on a free port."""
    state = tmp_path_factory.mktemp("state")
    command = [sys.executable, "-m", "threadline.cli.main", "serve", "examples/oncall"]
    command += ["--port", "0", "--state-root", str(state), "--json", "--bearer-token", "t0ken"]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env=os.environ | {"ONCALL_PACE": "0"},
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield str(json.loads(process.stdout.readline())["url"])
        finally:
            process.terminate()
            process.wait(20)


def test_curl_is_answered(host: str) -> None:
    (script,) = (text for text in shown("sh") if text.startswith("curl "))
    done = subprocess.run(
        ["sh", "-eu", "-c", script.replace(PORT, host)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=os.environ | {"ONCALL_TOKEN": "t0ken"},
    )
    told = json.loads(done.stdout)["result"]["structuredContent"]
    assert told["status"] == "finished"
    assert told["reply"]


async def test_python_is_answered(host: str) -> None:
    (code,) = (text for text in shown("python") if "async def ask" in text)
    namespace: dict[str, Any] = {"__name__": "example"}
    exec(compile(code.replace(PORT, host), "<example>", "exec"), namespace)
    reply = await namespace["ask"]("Is checkout down?", "t0ken")
    assert "checkout" in reply


def test_the_configurations_name_the_endpoint() -> None:
    for text in shown("json"):
        (server,) = json.loads(text)["mcpServers"].values()
        assert server["url"] == f"{PORT}/oncall/v1/mcp"
        assert server["headers"]["Authorization"].startswith("Bearer ${")


async def test_a_project_replaces_the_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = (text for text in shown("python") if "McpChannel" in text)
    namespace: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "<example>", "exec"), namespace)
    channel = namespace["channel"]
    assert isinstance(channel, Channel)
    monkeypatch.setenv("EDITORS_TOKEN", "e")
    token = {"authorization": "Bearer e"}
    one = agent(Gate(), channels={"mcp": channel})
    async with (
        serve(tmp_path, one) as served,
        connected(served, user=None, headers=token) as client,
    ):
        assert (await client.call_tool("ask", {"message": "hi"})).structured_content[
            "reply"
        ] == "hi"
        status, _ = await served.ask("POST", "/v1/mcp", {}, user="ann")
        assert status == 401


def test_every_status_is_in_the_table() -> None:
    from threadline_mcp.conversation import Told

    named = Told.model_json_schema()["properties"]["status"]["enum"]
    assert re.findall(r"^\| `(\w+)` \| [^|]+\|$", PAGE, re.M) == named
