"""examples/incidents does what its README shows, command by command."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.host.serving import Served, serve, until

from threadline.project import load_project
from threadline.testing.laws import check_laws

EXAMPLE = Path(__file__).parents[2] / "examples" / "incidents"
COMMANDS = re.findall(r"```bash\n(curl.*?)```", (EXAMPLE / "README.md").read_text(), re.S)


def request_of(command: str) -> tuple[str, str, dict[str, str], bytes | None]:
    """Return method, path, headers and body of a curl command."""
    words = iter(shlex.split(command.replace("\\\n", " "))[1:])
    method, url, headers, body = "GET", "", {}, None
    for word in words:
        match word:
            case "-X":
                method = next(words)
            case "-H":
                name, _, value = next(words).partition(": ")
                headers[name] = value
            case "-d":
                body = next(words).encode()
            case "-N":
                pass
            case _:
                url = word
    parts = urlsplit(url)
    return method, parts.path + (f"?{parts.query}" if parts.query else ""), headers, body


async def run(served: Served, command: str, session: str = "") -> tuple[int, Any]:
    """Do what a curl command of the README does."""
    method, path, headers, body = request_of(command.replace("$SESSION", session))
    assert path.startswith("/incidents/")
    url = served.host.local_url + path
    async with served.client.request(method, url, headers=headers, data=body) as response:
        return response.status, await response.json()


class Stream:
    """The session's stream, as the README's last command reads it."""

    def __init__(self, response: Any) -> None:
        self.response = response
        self.events: list[dict[str, Any]] = []

    async def until(self, *types: str) -> None:
        """Read on until events of these types came, one after the other."""
        for type_ in types:
            while True:
                line = await self.response.content.readline()
                if line.strip():
                    self.events.append(json.loads(line))
                    if self.events[-1]["type"] == type_:
                        break


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("INCIDENTS_PACE", "0.2")
    monkeypatch.delenv("INCIDENTS_TOKEN", raising=False)
    monkeypatch.delenv("THREADLINE_MODEL", raising=False)
    return monkeypatch


async def test_the_readme_happens_as_it_says(tmp_path: Path, pace: pytest.MonkeyPatch) -> None:
    start, steer, later, sets, fate, stream = COMMANDS
    project = load_project(EXAMPLE)
    async with serve(tmp_path, project) as served:
        status, answer = await run(served, start)
        assert (status, answer["admitted"]) == (202, "started")
        assert answer["continuationToken"] == "INC-7"
        session = answer["sessionId"]
        path = request_of(stream.replace("$SESSION", session))[1]
        async with served.client.get(served.host.local_url + path) as response:
            reading = Stream(response)
            await reading.until("actions.requested")
            assert (await run(served, steer))[1]["admitted"] == "queued"
            await reading.until("nudge.delivered")
            await reading.until("actions.completed", "message.appended")
            assert (await run(served, later))[1]["admitted"] == "queued"
            pace.setenv("INCIDENTS_PACE", "0")
            await reading.until("turn.completed", "turn.completed")
        turns = [e for e in reading.events if e["type"] == "turn.completed"]
        assert "While I looked: INC-7 is now acknowledged." in turns[0]["data"]["result"]
        assert turns[1]["data"]["result"].startswith("**INC-7 is resolved.**")

        async def shown() -> bool:
            expected = {"steered": ["wh-2"], "prompted": ["wh-1", "wh-3"]}
            return bool((await run(served, sets))[1] == expected)

        await until(shown)
        assert (await run(served, fate))[1]["state"] == "steered"
        assert (await run(served, start))[1] == {**answer, "admitted": "duplicate"}
        await until(lambda: served.runtime.core.status(session) == "waiting")
        await served.runtime.core.synced(session)
        log = (served.state / "sessions" / session / "events.ndjson").read_bytes()
        check_laws(log, ["wh-1", "wh-2", "wh-3"])


async def test_who_may(tmp_path: Path, pace: pytest.MonkeyPatch) -> None:
    pace.setenv("INCIDENTS_PACE", "0")
    async with serve(tmp_path, load_project(EXAMPLE), bearer_token="other") as served:
        url = served.host.local_url + "/incidents/v1/channels/incidents/incidents"
        body = {"id": "INC-8", "status": "triggered"}
        proxied = {"x-forwarded-for": "203.0.113.9"}
        for token, expected in (("", 401), ("tracker", 401)):
            headers = proxied | {"authorization": f"Bearer {token}"}
            async with served.client.post(url, json=body, headers=headers) as response:
                assert response.status == expected
        pace.setenv("INCIDENTS_TOKEN", "tracker")
        headers = proxied | {"authorization": "Bearer tracker"}
        async with served.client.post(url, json=body, headers=headers) as response:
            assert response.status == 202
            session = (await response.json())["sessionId"]
        async with served.client.post(url, json={"id": 5}, headers=headers) as response:
            assert response.status == 400
            assert "status: Field required" in (await response.json())["message"]
        await until(lambda: served.runtime.core.status(session) == "waiting")
