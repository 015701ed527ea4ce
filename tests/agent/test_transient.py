"""Which failures are tried again, and when: ours, the system's, and those of HTTP clients."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import aiohttp
import httpx
import pytest
from tests.agent.conftest import Run

from threadline.agent.calls import Retry
from threadline.agent.tools import tool
from threadline.agent.transient import TransientToolError, is_transient, retry_after
from threadline.testing.clock import ManualClock

NOW = datetime(2025, 1, 31, 12, tzinfo=UTC)
REQUEST = httpx.Request("GET", "https://example.com")


def answered(status: int, **headers: str) -> httpx.HTTPStatusError:
    response = httpx.Response(status, headers=headers, request=REQUEST)
    with pytest.raises(httpx.HTTPStatusError) as caught:
        response.raise_for_status()
    return caught.value


def aio(status: int, **headers: str) -> aiohttp.ClientResponseError:
    return aiohttp.ClientResponseError(None, (), status=status, headers=headers)  # type: ignore[arg-type]


def requests_error(name: str, status: int | None = None, **headers: str) -> Exception:
    """Return an error as ``requests`` has it: its response is false when its status is an error."""

    class Response:
        status_code = status

        def __init__(self) -> None:
            self.headers = headers

        def __bool__(self) -> bool:
            return False

    kind = type(name, (OSError,), {"__module__": "requests.exceptions"})
    error: Any = kind("requests")
    error.response = Response() if status is not None else None
    return error  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "error",
    [
        TransientToolError("busy"),
        ConnectionRefusedError(),
        TimeoutError(),
        httpx.ConnectError("x"),
        httpx.ReadTimeout("x"),
        httpx.RemoteProtocolError("x"),
        httpx.PoolTimeout("x"),
        answered(429),
        answered(502),
        answered(503),
        answered(504),
        aiohttp.ServerDisconnectedError(),
        aiohttp.ServerTimeoutError(),
        aio(503),
        requests_error("ConnectionError"),
        requests_error("Timeout"),
        requests_error("HTTPError", 502),
        ExceptionGroup("g", [ConnectionError(), answered(503)]),
    ],
)
def test_what_may_pass(error: Exception) -> None:
    assert is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("503"),
        OSError("disk full"),
        FileNotFoundError(),
        answered(400),
        answered(401),
        answered(404),
        answered(500),
        answered(501),
        httpx.UnsupportedProtocol("x"),
        httpx.LocalProtocolError("x"),
        httpx.InvalidURL("x"),
        httpx.TooManyRedirects("x"),
        aio(404),
        requests_error("HTTPError", 404),
        requests_error("HTTPError"),
        ExceptionGroup("g", [ConnectionError(), ValueError()]),
        asyncio.CancelledError(),
        KeyboardInterrupt(),
        type("TransportError", (Exception,), {"__module__": "mine"})(),
        type("HTTPStatusError", (Exception,), {"__module__": "mine", "status": 503})(),
    ],
)
def test_what_does_not(error: BaseException) -> None:
    assert not is_transient(error)


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (TransientToolError("busy"), None),
        (TransientToolError("busy", retry_after=2.5), 2.5),
        (answered(503), None),
        (answered(503, **{"Retry-After": "7"}), 7.0),
        (answered(429, **{"retry-after": " 0 "}), 0.0),
        (answered(503, **{"Retry-After": "Fri, 31 Jan 2025 12:00:20 GMT"}), 20.0),
        (answered(503, **{"Retry-After": "Fri, 31 Jan 2025 12:00:20"}), 20.0),
        (answered(503, **{"Retry-After": "Fri, 31 Jan 2025 11:00:00 GMT"}), 0.0),
        (answered(503, **{"Retry-After": "soon"}), None),
        (answered(503, **{"Retry-After": "-5"}), None),
        (answered(503, **{"Retry-After": "1.5"}), None),
        (answered(503, **{"Retry-After": ""}), None),
        (aio(503, **{"Retry-After": "3"}), 3.0),
        (aio(503), None),
        (requests_error("HTTPError", 503, **{"Retry-After": "4"}), 4.0),
        (httpx.ConnectError("x"), None),
        (ConnectionError(), None),
        (ExceptionGroup("g", [answered(503, **{"Retry-After": "7"}), ConnectionError()]), 7.0),
        (ExceptionGroup("g", [ConnectionError()]), None),
    ],
)
def test_when(error: BaseException, seconds: float | None) -> None:
    assert retry_after(error, NOW) == seconds


async def test_a_read_waits_as_long_as_it_is_asked_to(run: Run, clock: ManualClock) -> None:
    errors: list[Exception] = [answered(429, **{"Retry-After": "9"}), httpx.ReadTimeout("slow")]
    seen: list[Retry] = []

    @tool(retries=2)
    async def look() -> str:
        if errors:
            raise errors.pop(0)
        return "up"

    task = asyncio.create_task(run(look, on_retry=seen.append))
    await clock.elapse(9)
    await clock.elapse(1)
    assert (await task).output == "up"
    assert [retry.delay_ms for retry in seen] == [9000, 1000]


async def test_a_wait_that_is_too_long_is_not_waited(run: Run) -> None:
    @tool(retries=2)
    async def look() -> str:
        raise answered(503, **{"Retry-After": "3600"})

    assert (await run(look)).code == "tool_failed"


@pytest.mark.parametrize("error", [TransientToolError("busy"), answered(503), ConnectionError()])
async def test_a_write_is_never_tried_again(run: Run, error: Exception) -> None:
    runs: list[int] = []

    @tool(effect="write")
    async def send() -> None:
        runs.append(1)
        raise error

    # Even one that was made to look as if it were.
    object.__setattr__(send, "retries", 3)
    assert (await run(send)).code == "tool_failed"
    assert runs == [1]


def test_no_client_is_imported() -> None:
    script = (
        "import sys, threadline.agent.calls\n"
        "print([m for m in ('httpx', 'aiohttp', 'requests') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
