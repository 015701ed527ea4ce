"""Bad input: each gets its documented error, nothing else changes, and nothing outside is read."""

from __future__ import annotations

import asyncio
import base64
import gzip
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.host.serving import Gate, Served, agent, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

JSON = "application/json"


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture(params=["multi", "single"])
async def served(
    request: pytest.FixtureRequest, tmp_path: Path, gate: Gate
) -> AsyncIterator[Served]:
    async with serve(tmp_path / "state", agent(gate), mode=request.param) as running:
        yield running


class Everything:
    """What must not change: the sessions, their logs, the folders below the state root."""

    def __init__(self, served: Served) -> None:
        self.served = served

    def __enter__(self) -> Everything:
        self.before = self._look()
        return self

    def __exit__(self, *error: Any) -> None:
        assert self._look() == self.before

    def _look(self) -> dict[str, bytes]:
        sessions = self.served.state / "sessions"
        files = [path for path in sorted(sessions.rglob("*")) if path.is_file()]
        return {str(path): path.read_bytes() for path in files}


def check_error(status: int, answer: Any, expected: int, code: str | None = None) -> None:
    assert status == expected, answer
    assert answer["ok"] is False
    assert isinstance(answer["message"], str)
    assert "Traceback" not in str(answer)
    if code is not None:
        assert answer["error"] == code


BODIES: dict[str, bytes] = {
    "nothing": b"",
    "a brace": b"{",
    "not JSON": b"message=hi",
    "two values": b'{"message":"hi"}{}',
    "NaN": b'{"message":"hi","title":NaN}',
    "a lone surrogate": b'{"message":"\\ud800"}',
    "a lone surrogate in a name": b'{"message":"hi","\\udfff":1}',
    "bytes that are no UTF-8": b'{"message":"\xff"}',
    "an encoded surrogate": b'{"message":"\xed\xa0\x80"}',
    "a byte order mark": b'\xef\xbb\xbf{"message":"hi"}',
    "UTF-16": '{"message":"hi"}'.encode("utf-16"),
    "very deep": b'{"message":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "null": b"null",
    "a list": b"[]",
    "a string": b'"hi"',
    "no message": b"{}",
    "message null": b'{"message":null}',
    "message a number": b'{"message":5}',
    "message true": b'{"message":true}',
    "message a list": b'{"message":["hi"]}',
    "message empty": b'{"message":""}',
    "message blank": b'{"message":" \\n\\t\\u00a0\\u2003"}',
    "message with NUL": b'{"message":"a\\u0000b"}',
    "an unknown field": b'{"message":"hi","mesage":"x"}',
    "a field in snake case": b'{"message":"hi","delivery_id":"x"}',
    "title a number": b'{"message":"hi","title":1}',
    "title blank": b'{"message":"hi","title":" "}',
    "title too long": b'{"message":"hi","title":"' + b"x" * 301 + b'"}',
    "title with NUL": b'{"message":"hi","title":"a\\u0000"}',
    "purpose too long": b'{"message":"hi","purpose":"' + b"x" * 101 + b'"}',
    "purpose with NUL": b'{"message":"hi","purpose":"\\u0000"}',
    "dryRun text": b'{"message":"hi","dryRun":"yes"}',
    "asOf without a timezone": b'{"message":"hi","asOf":"2025-01-01T00:00:00"}',
    "asOf a date": b'{"message":"hi","asOf":"2025-01-01"}',
    "asOf relative": b'{"message":"hi","asOf":"-1h"}',
    "asOf in the future": b'{"message":"hi","asOf":"9999-01-01T00:00:00Z"}',
    "asOf beyond time": b'{"message":"hi","asOf":"0001-01-01T00:00:00+23:59"}',
    "asOf empty": b'{"message":"hi","asOf":""}',
    "asOf a number": b'{"message":"hi","asOf":5}',
    "admission unknown": b'{"message":"hi","admission":"queue"}',
    "deliveryId empty": b'{"message":"hi","deliveryId":""}',
    "deliveryId too long": b'{"message":"hi","deliveryId":"' + b"x" * 201 + b'"}',
    "deliveryId with a line": b'{"message":"hi","deliveryId":"a\\nb"}',
    "deliveryId a number": b'{"message":"hi","deliveryId":7}',
    "workspaceFiles a list": b'{"message":"hi","workspaceFiles":[]}',
    "workspaceFiles numbers": b'{"message":"hi","workspaceFiles":{"a":1}}',
    "workspaceFiles odd": b'{"message":"hi","workspaceFiles":{"a":{"hex":"00"}}}',
    "workspaceFiles no base64": b'{"message":"hi","workspaceFiles":{"a":{"base64":"%"}}}',
    "a token": b'{"message":"hi","continuationToken":"http:x"}',
}


async def test_a_bad_body_is_400_and_starts_nothing(served: Served) -> None:
    with Everything(served):
        for name, raw in BODIES.items():
            status, answer = await served.ask("POST", "/v1/session", raw=raw)
            assert status == 400, name
            check_error(status, answer, 400)
    assert (await served.ask("GET", "/v1/sessions"))[1] == {"sessions": []}


async def test_a_bad_follow_up_is_400_and_changes_nothing(served: Served) -> None:
    first = await served.start()
    await served.rest(first["sessionId"])
    path = f"/v1/session/{first['sessionId']}"
    token = first["continuationToken"]
    with Everything(served):
        for body in (
            {},
            {"message": "hi"},
            {"continuationToken": token},
            {"message": "hi", "continuationToken": ""},
            {"message": "hi", "continuationToken": 5},
            {"message": " ", "continuationToken": token},
            {"message": "hi", "continuationToken": token, "title": "x"},
            {"message": "hi", "continuationToken": token, "asOf": "yesterday"},
            {"message": "hi", "continuationToken": token, "deliveryId": "\x7f"},
        ):
            check_error(*await served.ask("POST", path, body), 400)
        for other in ({"dryRun": True}, {"asOf": "2025-01-01T00:00:00Z"}):
            body = {"message": "hi", "continuationToken": token} | other
            check_error(*await served.ask("POST", path, body), 409, "conflict")
        for wrong in ("http:x", token[:-1], token + "x", "\u00e9" * 400):
            body = {"message": "hi", "continuationToken": wrong}
            check_error(*await served.ask("POST", path, body), 409, "stale_token")
        check_error(*await served.ask("POST", path + "/stop", {"clearPending": 1}), 400)
        check_error(*await served.ask("POST", path + "/stop", {"clear": True}), 400)
        check_error(*await served.ask("POST", path + "/stop", raw=b"["), 400)
    assert (await served.follow_up(first, "still here"))[0] == 200


async def test_eleven_megabytes_are_too_many(served: Served) -> None:
    first = await served.start()
    await served.rest(first["sessionId"])
    huge = b'{"message":"' + b"x" * 11_000_000 + b'"}'
    with Everything(served):
        for path in ("/v1/session", f"/v1/session/{first['sessionId']}", "/v1/tools/double"):
            check_error(*await served.ask("POST", path, raw=huge), 413, "body_too_large")
    assert (await served.ask("GET", "/v1/sessions"))[0] == 200


async def test_a_body_may_be_compressed_but_not_a_bomb(served: Served) -> None:
    body = gzip.compress(b'{"message":"hi"}')
    headers = {"content-encoding": "gzip"}
    assert (await served.ask("POST", "/v1/session", raw=body, headers=headers))[0] == 200
    bomb = gzip.compress(b" " * 50_000_000)
    check_error(*await served.ask("POST", "/v1/session", raw=bomb, headers=headers), 413)
    check_error(*await served.ask("POST", "/v1/session", raw=b"no gzip", headers=headers), 400)


async def test_headers_that_are_no_text(served: Served) -> None:
    for name in ("idempotency-key", "authorization", "x-user", "origin"):
        head = f"POST {served.prefix}/v1/session HTTP/1.1\r\nHost: localhost\r\nx-user: ann\r\n"
        body = b'{"message":"hi"}'
        lines = head.encode() + name.encode() + b": \xff\xfe\x80\r\n"
        raw = lines + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body
        reader, writer = await asyncio.open_connection("127.0.0.1", served.host.port)
        writer.write(raw)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        status = int(answer.split(b" ")[1])
        assert status < 500, answer
        assert (status == 400) == (name == "idempotency-key")


METHODS = [
    ("PUT", "/v1/session", "POST"),
    ("GET", "/v1/session", "POST"),
    ("GET", "/v1/session/{id}", "DELETE,POST"),
    ("DELETE", "/v1/session/{id}/stream", "GET"),
    ("POST", "/v1/session/{id}/events", "GET"),
    ("HEAD", "/v1/session/{id}/stream", "GET"),
    ("OPTIONS", "/v1/session", "POST"),
    ("GET", "/v1/session/{id}/stop", "POST"),
    ("POST", "/v1/sessions", "GET"),
    ("POST", "/v1/info", "GET"),
    ("DELETE", "/v1/tools/double", "GET,POST"),
]


async def test_a_wrong_method_is_405(served: Served) -> None:
    first = await served.start()
    await served.rest(first["sessionId"])
    with Everything(served):
        for method, path, allowed in METHODS:
            url = served.host.local_url + served.prefix + path.format(id=first["sessionId"])
            async with served.client.request(method, url, headers={"x-user": "ann"}) as response:
                assert response.status == 405, (method, path)
                assert response.headers["allow"] == allowed
                assert response.content_type == JSON
                if method != "HEAD":
                    check_error(405, await response.json(), 405, "method_not_allowed")


async def test_an_unknown_route_is_404(served: Served) -> None:
    for path in ("/v1/nothing", "/v1/session/", "/v2/session", "/v1//session", "/%00", "/v1/%ff"):
        check_error(*await served.ask("GET", path), 404, "not_found")


HOSTILE = [
    "..",
    ".",
    "../x",
    "..%2f..%2fetc",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "%2fetc%2fpasswd",
    "/etc/passwd",
    "C:%5Cx",
    "ses_a%2f..%2f..%2fb",
    "ses_a/../../b",
    "ses_a%00b",
    "SES_FIXTURE1",
    "a" * 5000,
    "ses_" + "a" * 5000,
    "con",
    "ses_e%CC%81",
    "ses_%ff",
    "ses_%ed%a0%80",
    "ses_nothing",
    "~root",
    "%24HOME",
]


@contextmanager
def watched(allowed: Path) -> Iterator[list[str]]:
    """Record every file that is opened, made, removed or listed outside a folder."""
    touched: list[str] = []
    on = [True]
    kinds = {"open", "os.listdir", "os.scandir", "os.mkdir", "os.remove", "os.rmdir", "os.rename"}

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if on[0] and event in kinds and isinstance(arguments[0], (str, bytes, os.PathLike)):
            path = os.path.abspath(os.fsdecode(arguments[0]))  # noqa: PTH100
            if not path.startswith(str(allowed)) and not path.endswith((".py", ".pyc")):
                touched.append(path)

    sys.addaudithook(hook)
    try:
        yield touched
    finally:
        on[0] = False


ROUTES = [
    ("GET", "/v1/session/{}/events"),
    ("GET", "/v1/session/{}/stream"),
    ("GET", "/v1/session/{}/cost"),
    ("GET", "/v1/session/{}/blobs/blob_1"),
    ("POST", "/v1/session/{}/stop"),
    ("POST", "/v1/session/{}/approvals/c"),
    ("POST", "/v1/session/{}"),
    ("DELETE", "/v1/session/{}"),
    ("GET", "/v1/deliveries/{}"),
    ("GET", "/v1/tools/{}"),
    ("POST", "/v1/tools/{}"),
    ("GET", "/v1/tools?session={}"),
    ("GET", "/v1/sessions?sessionId={}"),
    ("GET", "/playground/assets/{}"),
    ("GET", "/docs/{}"),
    ("GET", "/{}/v1/sessions"),
]
SENT = {
    "/v1/session/{}": {"message": "x", "continuationToken": "http:x"},
    "/v1/session/{}/approvals/c": {"decision": "approved"},
    "/v1/tools/{}": {"input": {}},
}


async def test_no_name_in_a_path_leaves_the_state_root(served: Served, tmp_path: Path) -> None:
    first = await served.start("kept")
    await served.rest(first["sessionId"])
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "events.ndjson").write_text("secret")
    with Everything(served), watched(served.state) as touched:
        for name in HOSTILE:
            for method, path in ROUTES:
                body = SENT.get(path) if method == "POST" else None
                status, text = await _raw(served, method, path.format(name), body)
                assert status in (400, 404, 405), (method, path.format(name), status)
                assert "secret" not in text
                assert "Traceback" not in text
    ours = str(served.state.parent)
    pages = ("/host/assets", "/docs")
    assert [p for p in touched if not p.startswith(ours) and not p.endswith(pages)] == []


async def _raw(served: Served, method: str, path: str, body: Any) -> tuple[int, str]:
    """Send a path as it is: a client library would tidy it first."""
    import json

    data = b"" if body is None else json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", served.host.port)
    head = f"{method} {served.prefix}{path} HTTP/1.1\r\nHost: localhost\r\nx-user: ann\r\n"
    writer.write(head.encode() + b"Content-Length: %d\r\n" % len(data))
    writer.write(b"Connection: close\r\n\r\n" + data)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    await writer.wait_closed()
    return int(answer.split(b" ")[1]), answer.decode("utf-8", "replace")


FILES = [
    "../escape.txt",
    "/tmp/abs.txt",
    "a/../../b.txt",
    "..\\win.txt",
    "C:\\x.txt",
    "C:/x.txt",
    "a\u0000b.txt",
    "",
    ".",
    "..",
    "/",
    "a/",
    "a//b",
    "ok/./x.txt",
    "ok/x.txt/deeper",
    "OK/X.TXT",
    "ok",
    ".cursor/settings.json",
    ".CURSOR/settings.json",
    "AGENTS.md",
    "sub/agents.MD",
    "A" * 300 + ".txt",
    "d/" * 600 + "x",
    "CON",
    "aux.txt",
    "file.txt:stream",
    " lead.txt",
    "trail. ",
    "dot.",
    "a\nb",
    "a\u0085b",
]


async def test_a_hostile_file_path_is_400_and_writes_nothing(
    served: Served, tmp_path: Path
) -> None:
    around = set(tmp_path.iterdir())
    with Everything(served):
        for path in FILES:
            body = {"message": "hi", "workspaceFiles": {"ok/x.txt": "fine", path: "data"}}
            status, answer = await served.ask("POST", "/v1/session", body)
            assert status == 400, path
            check_error(status, answer, 400, "invalid_request")
    assert (await served.ask("GET", "/v1/sessions"))[1] == {"sessions": []}
    assert set(tmp_path.iterdir()) == around


async def test_good_files_are_in_the_workspace(served: Served) -> None:
    blob = bytes(range(256))
    files = {
        "ok/x.txt": "fine \u2028",
        "logo.bin": {"base64": base64.b64encode(blob).decode()},
        "émoji 🙂.txt": "",
    }
    first = await served.start("hi", workspaceFiles=files)
    await served.rest(first["sessionId"])
    workspace = served.state / "sessions" / first["sessionId"] / "workspace"
    assert (workspace / "ok/x.txt").read_text() == "fine \u2028"
    assert (workspace / "logo.bin").read_bytes() == blob
    assert (workspace / "émoji 🙂.txt").read_bytes() == b""


async def test_no_file_is_written_through_a_link(served: Served, tmp_path: Path) -> None:
    first = await served.start("hi", workspaceFiles={"a.txt": "a"})
    await served.rest(first["sessionId"])
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "x").write_text("before")
    workspace = served.state / "sessions" / first["sessionId"] / "workspace"
    (workspace / "out").symlink_to(victim)
    (workspace / "f").symlink_to(victim / "x")
    (workspace / "gone").symlink_to(victim / "missing")
    log = await served.events(first["sessionId"])
    for path in ("out/x", "out/new", "f", "gone"):
        answer = await served.follow_up(first, "x", workspaceFiles={path: "after"})
        check_error(*answer, 400, "invalid_request")
    assert (victim / "x").read_text() == "before"
    assert sorted(p.name for p in victim.iterdir()) == ["x"]
    assert await served.events(first["sessionId"]) == log
    path = f"/v1/session/{first['sessionId']}"
    assert (await served.ask("DELETE", path))[0] == 200
    assert (victim / "x").read_text() == "before"


async def test_a_session_folder_that_is_a_link_is_no_session(
    served: Served, tmp_path: Path
) -> None:
    first = await served.start()
    await served.rest(first["sessionId"])
    folder = served.state / "sessions" / first["sessionId"]
    moved = tmp_path / "moved"
    folder.rename(moved)
    folder.symlink_to(moved)
    path = f"/v1/session/{first['sessionId']}/events"
    check_error(*await served.ask("GET", path), 404)
    assert (moved / "events.ndjson").exists()
