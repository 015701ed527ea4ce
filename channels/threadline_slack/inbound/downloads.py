"""A message's files, into the workspace; and of those that are not there, why.

Every file is a plain file to the model, whatever it holds: nothing is rendered or unpacked.
"""

from __future__ import annotations

import asyncio
import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from threadline import TryAgain
from threadline.channel.target import understood
from threadline.clock import Clock
from threadline_slack.client import token_of
from threadline_slack.inbound.waits import Waits, why
from threadline_slack.words.text import File, read

if TYPE_CHECKING:
    import aiohttp
    from slack_sdk.web.async_client import AsyncWebClient

__all__ = ["Downloads", "Limits"]

_CHUNK = 1 << 16
_AT_ONCE = 3
_LONGEST_NAME = 150  # bytes
_AGAIN_AFTER = 1.0  # seconds
_KINDS = {
    "email": "an email",
    "list": "a Slack list",
    "quip": "a Slack canvas, as HTML",
    "space": "a Slack post",
}
_NO_BYTES = {
    "hidden_by_limit": "the plan of this workspace hides it",
    "list": "a list has no file",
    "tombstone": "it was deleted",
}
_SIGN_IN = "Slack sent a page to sign in; the app may lack the scope files:read"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a message may bring along; sizes are in bytes.

    ``allowed`` and ``denied`` are patterns such as ``image/*`` or ``*.exe``, of a file's type or
    its name, whatever the case. ``earlier`` is how many posts from before a question are told.
    """

    file_bytes: int = 20_000_000
    all_bytes: int = 50_000_000
    files: int = 10
    earlier: int = 40
    allowed: Sequence[str] = ("*",)
    denied: Sequence[str] = ()

    def takes(self, file: File) -> bool:
        """Tell whether a file is of a wanted type."""
        return _fits(file, self.allowed) and not _fits(file, self.denied)


class Downloads:
    """Fetches files for one bot."""

    def __init__(
        self, client: AsyncWebClient, http: aiohttp.ClientSession, waits: Waits, limits: Limits
    ) -> None:
        self._client = client
        self._http = http
        self._waits = waits
        self._limits = limits

    async def fetch(self, files: Sequence[File], clock: Clock) -> tuple[dict[str, bytes], str]:
        """Return the files by their place in the workspace, and a list for the model."""
        budget = _Budget(self._limits.all_bytes)
        turns = asyncio.Semaphore(_AT_ONCE)

        async def one(number: int, file: File) -> tuple[File, bytes | str]:
            if number >= self._limits.files:
                return file, f"a message may bring {self._limits.files} files"
            async with turns:
                return await self._file(file, budget, clock)

        got: dict[str, bytes] = {}
        lines = []
        for file, body in await asyncio.gather(*(one(n, file) for n, file in enumerate(files))):
            what = _KINDS.get(file.kind, file.mimetype)
            if isinstance(body, bytes):
                path = f"slack/{file.id}-{_safe(file)}"
                got[path] = body
                lines.append(f"- {file.name} ({what}, {len(body)} bytes): {path}")
            else:
                size = f", {file.size} bytes" if file.size else ""
                lines.append(f"- {file.name} ({what}{size}): not available, {body}")
        return got, "Files of this message:\n" + "\n".join(lines) if lines else ""

    async def _file(self, file: File, budget: _Budget, clock: Clock) -> tuple[File, bytes | str]:
        """Return a file as it is known now, and its bytes, or why there are none."""
        try:
            if file.access == "check_file_info" or file.url is None:
                file = await self._known(file, clock)
            if (reason := self._refused(file)) is not None:
                return file, reason
            return file, await self._bytes(file, budget, clock)
        except Exception as error:
            return file, why(error)

    async def _known(self, file: File, clock: Clock) -> File:
        info = await self._waits.call(
            "files.info", clock, lambda: self._client.files_info(file=file.id)
        )
        found = read({"files": [info["file"]]}).files
        return found[0] if found else replace(file, kind="tombstone")

    def _refused(self, file: File) -> str | None:
        if file.kind in _NO_BYTES:
            return _NO_BYTES[file.kind]
        if not self._limits.takes(file):
            return "files of this type are not taken"
        if file.size > self._limits.file_bytes:
            return f"it is too large ({file.size} bytes)"
        if file.url is None:
            return "Slack gives no address of it"
        return None if self._is_ours(file.url) else f"it is kept elsewhere: {file.url}"

    def _is_ours(self, url: str) -> bool:
        """Tell whether the bot's token may be sent there."""
        host, api = urlsplit(url), urlsplit(self._client.base_url)
        if (host.scheme, host.netloc) == (api.scheme, api.netloc):
            return True
        name = host.hostname or ""
        return host.scheme == "https" and (name == "slack.com" or name.endswith(".slack.com"))

    async def _bytes(self, file: File, budget: _Budget, clock: Clock) -> bytes | str:
        """Download a file, and once more when what is wrong may pass."""
        try:
            return await self._download(file, budget)
        except Exception as error:
            again = understood(error)
            if not isinstance(again, TryAgain | TimeoutError):
                raise
            await clock.sleep(min(getattr(again, "retry_after", None) or _AGAIN_AFTER, 5.0))
        return await self._download(file, budget)

    async def _download(self, file: File, budget: _Budget) -> bytes | str:
        headers = {"Authorization": f"Bearer {await token_of(self._client)}"}
        most = min(self._limits.file_bytes, budget.left)
        async with self._http.get(str(file.url), headers=headers, allow_redirects=False) as answer:
            if answer.status in (301, 302, 303, 307, 308) or _is_page(file, answer):
                return _SIGN_IN
            TryAgain.when(answer.status, answer.headers)
            if answer.status != 200:
                return f"the server answered {answer.status}"
            body = bytearray()
            async for chunk in answer.content.iter_chunked(_CHUNK):
                body += chunk
                if len(body) > most:
                    return "it is too large, or all files together are"
        if len(body) > budget.left:
            return "all files together are too large"
        budget.left -= len(body)
        return bytes(body)


@dataclass(slots=True)
class _Budget:
    """How many bytes the files of one message may still have."""

    left: int


def _is_page(file: File, answer: aiohttp.ClientResponse) -> bool:
    """Tell a page to sign in from a file: Slack answers 200 with it when a scope is missing."""
    if answer.content_type != "text/html" or "Content-Disposition" in answer.headers:
        return False
    return "html" not in file.mimetype and file.kind not in ("quip", "space", "email")


def _fits(file: File, patterns: Sequence[str]) -> bool:
    kinds = file.mimetype.lower(), file.name.lower()
    return any(fnmatch.fnmatchcase(one, pattern.lower()) for pattern in patterns for one in kinds)


def _safe(file: File) -> str:
    """Return a file name for the workspace: the end of the file's own, where its type is."""
    name = re.sub(r"[^\w.-]+", "_", file.name).lstrip(".")
    if file.kind == "quip" and not name.lower().endswith((".html", ".htm")):
        name += ".html"
    return name.encode()[-_LONGEST_NAME:].decode(errors="ignore") or "file"
