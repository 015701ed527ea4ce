"""What belongs to a message, fetched after it is accepted: names, what was said before, files."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from threadline import Prepared
from threadline_slack.inbound import Ask, Me, Place
from threadline_slack.text import File, read
from threadline_slack.thread import error_of

if TYPE_CHECKING:
    import aiohttp
    from slack_sdk.web.async_client import AsyncWebClient

__all__ = ["Gatherer", "Limits", "metadata"]

_REMEMBERED = 5_000
_PAGE, _PAGES = 200, 5
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Limits:
    """What a message may bring along; sizes are in bytes."""

    file_bytes: int = 20_000_000
    all_bytes: int = 50_000_000
    files: int = 10
    earlier: int = 40


def metadata(ask: Ask) -> dict[str, Any]:
    """Return what ``Gatherer`` needs to know of a message, as a delivery keeps it."""
    return {
        "token": ask.place.token,
        "ts": ask.ts,
        "user": ask.person.user,
        "users": list(ask.said.users),
        "channels": list(ask.said.channels),
        "files": [
            {
                "id": file.id,
                "name": file.name,
                "mimetype": file.mimetype,
                "size": file.size,
                "url": file.url,
                "access": file.access,
            }
            for file in ask.files
        ],
    }


class Gatherer:
    """Reads Slack for one bot; names are remembered."""

    def __init__(
        self, client: AsyncWebClient, http: aiohttp.ClientSession, limits: Limits | None = None
    ) -> None:
        self._client = client
        self._http = http
        self._limits = limits or Limits()
        self._names: OrderedDict[str, str] = OrderedDict()

    async def gather(self, known: Mapping[str, Any], me: Me, *, earlier: bool) -> Prepared:
        """Return the context and files of a message, by what ``metadata`` kept of it."""
        place, ts = Place.of(str(known["token"])), str(known["ts"])
        before, who, (files, listing) = await asyncio.gather(
            self._before(place, ts, me) if earlier else _nothing(),
            self._who(place, known),
            self._files([File(**file) for file in known.get("files", ())]),
        )
        return Prepared(context=[part for part in (who, before, listing) if part], files=files)

    # Names

    async def _who(self, place: Place, known: Mapping[str, Any]) -> str:
        user = str(known["user"])
        names = await self.names([user, *known.get("users", ()), place.channel])
        said = f"From {names.get(user, user)} ({user})"
        if place.channel in names and not place.channel.startswith("D"):
            said += f" in #{names[place.channel]}"
        others = [f"@{one} is {names[one]}" for one in known.get("users", ()) if one in names]
        return f"[{'; '.join([said, *others])}]"

    async def names(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the names of users and channels, of those that Slack tells us."""
        wanted = list(dict.fromkeys(ids))
        unknown = [one for one in wanted if one not in self._names]
        await asyncio.gather(*(self._learn(one) for one in unknown))
        return {one: self._names[one] for one in wanted if self._names.get(one)}

    async def _learn(self, identity: str) -> None:
        try:
            name = await self._asked(identity)
        except Exception as error:
            if not error_of(error):
                raise
            name = ""
        self._names[identity] = name
        while len(self._names) > _REMEMBERED:
            self._names.popitem(last=False)

    async def _asked(self, identity: str) -> str:
        if identity[:1] in "UW":
            user = (await self._client.users_info(user=identity))["user"]
            profile = user.get("profile") or {}
            return str(profile.get("display_name") or user.get("real_name") or user.get("name"))
        if identity[:1] in "CG":
            channel = (await self._client.conversations_info(channel=identity))["channel"]
            return str(channel.get("name") or "")
        return ""

    # What was said before

    async def _before(self, place: Place, ts: str, me: Me) -> str:
        """Return the thread's posts between the agent's last one and this one."""
        if place.root is None or place.root == ts:
            return ""
        messages = await self._thread(place.root, place.channel, ts)
        mine = [n for n, message in enumerate(messages) if me.wrote(message)]
        since = messages[mine[-1] + 1 if mine else 0 :][-self._limits.earlier :]
        names = await self.names(_authors(since))
        lines = [_line(message, names) for message in since]
        said = [line for line in lines if line]
        return "Said earlier in this thread:\n" + "\n".join(said) if said else ""

    async def _thread(self, root: str, channel: str, before: str) -> list[Mapping[str, Any]]:
        """Return the posts older than one, in order: the root, and the newest of the rest."""
        found: dict[str, Mapping[str, Any]] = {}
        cursor: str | None = None
        for _ in range(_PAGES):
            answer = await self._client.conversations_replies(
                channel=channel, ts=root, latest=before, inclusive=False, limit=_PAGE, cursor=cursor
            )
            found |= {str(message.get("ts")): message for message in answer.get("messages") or []}
            cursor = (answer.get("response_metadata") or {}).get("next_cursor") or None
            if cursor is None:
                break
        return [found[ts] for ts in sorted(found, key=_order) if _order(ts) < _order(before)]

    # Files

    async def _files(self, files: Sequence[File]) -> tuple[dict[str, bytes], str]:
        """Return the files by their place in the workspace, and a list for the model."""
        got: dict[str, bytes] = {}
        lines = []
        left = self._limits.all_bytes
        for number, file in enumerate(files):
            body: bytes | str = "there are too many"
            if number < self._limits.files:
                body = await self._file(file, min(left, self._limits.file_bytes))
            if isinstance(body, bytes):
                path = f"slack/{file.id}-{_safe(file.name)}"
                got[path] = body
                left -= len(body)
                lines.append(f"- {file.name} ({file.mimetype}, {len(body)} bytes): {path}")
            else:
                lines.append(f"- {file.name} ({file.mimetype}): not available, {body}")
        return got, "Files of this message:\n" + "\n".join(lines) if lines else ""

    async def _file(self, file: File, most: int) -> bytes | str:
        """Return a file's bytes, or why there are none."""
        try:
            if file.access == "check_file_info" or file.url is None:
                info = (await self._client.files_info(file=file.id))["file"]
                file = read({"files": [info]}).files[0]
            if file.size > most:
                return f"it is too large ({file.size} bytes)"
            if file.url is None or not self._is_ours(file.url):
                return "it is kept elsewhere"
            return await self._download(file.url, most)
        except Exception as error:
            return f"Slack answered {error_of(error) or type(error).__name__}"

    def _is_ours(self, url: str) -> bool:
        """Tell whether the bot's token may be sent there."""
        host, api = urlsplit(url), urlsplit(self._client.base_url)
        if (host.scheme, host.netloc) == (api.scheme, api.netloc):
            return True
        name = host.hostname or ""
        return host.scheme == "https" and (name == "slack.com" or name.endswith(".slack.com"))

    async def _download(self, url: str, most: int) -> bytes | str:
        headers = {"Authorization": f"Bearer {self._client.token}"}
        async with self._http.get(url, headers=headers, allow_redirects=False) as answer:
            if answer.status != 200:
                return f"the server answered {answer.status}"
            body = bytearray()
            async for chunk in answer.content.iter_chunked(_CHUNK):
                body += chunk
                if len(body) > most:
                    return "it is too large"
            return bytes(body)


async def _nothing() -> str:
    return ""


def _authors(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    return [str(m["user"]) for m in messages if m.get("user")]


def _line(message: Mapping[str, Any], names: Mapping[str, str]) -> str:
    author = str(message.get("user") or message.get("username") or message.get("bot_id") or "")
    said = read(message, names=names)
    more = ", ".join(file.name for file in said.files)
    text = f"{said.text} [files: {more}]" if more else said.text
    return f"- {names.get(author, author)}: {text}" if text.strip() else ""


def _order(ts: str) -> tuple[int, int]:
    seconds, _, rest = ts.partition(".")
    return int(seconds or 0), int(rest or 0)


def _safe(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name).lstrip(".")[-100:] or "file"
