"""The on-call example on a model API over HTTP, in OpenAI's and Anthropic's dialects.

The server is llmock: it speaks both, answers by a script and can fail on demand.
"""

from __future__ import annotations

import json
import os
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
SECONDS = 40.0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _call(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


def _wait(url: str, process: subprocess.Popen[Any]) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server ended"
        try:
            _call(url)
        except OSError:
            continue
        return
    raise AssertionError(f"{url} does not answer")


@pytest.fixture(scope="module")
def api() -> Iterator[str]:
    """A model API server; yields its address."""
    pytest.importorskip("llmock", reason="llmock is installed by make test-real")
    port = _free_port()
    command = [str(Path(sys.executable).parent / "llmock"), "serve", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait(f"http://127.0.0.1:{port}/_llmock/requests", server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(20)


DIALECTS = {
    "openai-chat:gpt-5-mini": {"OPENAI_BASE_URL": "/v1", "OPENAI_API_KEY": "sk-test-0123456789"},
    "anthropic:claude-sonnet-4-5": {
        "ANTHROPIC_BASE_URL": "/anthropic",
        "ANTHROPIC_API_KEY": "sk-test-0123456789",
    },
}


@pytest.fixture(params=DIALECTS, ids=lambda model: model.partition(":")[0])
def host(request: pytest.FixtureRequest, api: str, tmp_path: Path) -> Iterator[str]:
    """The example, served on that API; yields the agent's address."""
    _call(f"{api}/_llmock/reset", {})
    variables = {
        name: (api + value if name.endswith("_URL") else value)
        for name, value in DIALECTS[request.param].items()
    }
    command = [sys.executable, "-m", "threadline.cli.main", "serve", "examples/oncall"]
    command += ["--port", "0", "--state-root", str(tmp_path), "--json"]
    environment = os.environ | variables | {"THREADLINE_MODEL": request.param, "ONCALL_PACE": "0"}
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield str(json.loads(process.stdout.readline())["url"]) + "/oncall"
        finally:
            process.terminate()
            process.wait(20)


def _turn(host: str, message: str) -> list[dict[str, Any]]:
    """Run one turn and return its events."""
    session = _call(f"{host}/v1/session", {"message": message})["sessionId"]
    events = []
    with urllib.request.urlopen(f"{host}/v1/session/{session}/stream", timeout=SECONDS) as stream:
        for line in stream:
            if line.strip():
                events.append(json.loads(line))
                if events[-1]["type"] == "session.waiting":
                    break
    return events


def _of(events: list[dict[str, Any]], type_: str) -> list[dict[str, Any]]:
    return [event["data"] for event in events if event["type"] == type_]


def test_a_tool_call_and_an_answer(host: str, api: str) -> None:
    """The model asks for a tool, reads its result, and answers; usage is recorded."""
    call = {"name": "page_status", "arguments": {"service": "checkout"}}
    script = [{"type": "reply", "tool_calls": [call]}, {"type": "reply", "text": "Degraded."}]
    _call(f"{api}/_llmock/scenario", {"behaviors": script})
    events = _turn(host, "Is checkout down?")
    (result,) = _of(events, "action.result")
    assert result["toolName"] == "page_status"
    assert result["isError"] is False
    assert _of(events, "message.completed")[-1]["text"] == "Degraded."
    (completed,) = _of(events, "turn.completed")
    assert completed["usage"]["requests"] == 2
    assert completed["usage"]["inputTokens"] > 0
    requests = json.dumps(_call(f"{api}/_llmock/requests"))
    instructions = (ROOT / "examples/oncall/agent/instructions.md").read_text("utf-8")
    assert json.dumps(instructions.splitlines()[0])[1:-1] in requests
    assert "p95 latency" in requests


def test_a_broken_stream_is_told(host: str, api: str) -> None:
    """A connection that ends in mid-answer fails the turn with a reason."""
    fault = {"type": "stream_fault", "kind": "disconnect", "after_chunks": 2}
    _call(f"{api}/_llmock/scenario", {"behaviors": [fault] * 5})
    events = _turn(host, "Is search down?")
    (failed,) = _of(events, "turn.failed")
    assert failed["status"] == "failed"
    assert failed["code"] == "model_error"
    assert failed["message"]


def test_a_rate_limit_that_passes_is_waited_out(host: str, api: str) -> None:
    """A 429 with a short Retry-After costs time, not the answer."""
    script = [
        {"type": "fail", "status": 429, "retry_after": 0.2},
        {"type": "reply", "text": "All good."},
    ]
    _call(f"{api}/_llmock/scenario", {"behaviors": script})
    events = _turn(host, "Is search down?")
    assert _of(events, "message.completed")[-1]["text"] == "All good."
