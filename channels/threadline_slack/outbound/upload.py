"""A file on its way into a conversation; shared there once.

Slack names a file before its bytes are sent, and shows it when that is completed. The name is kept
in between, so that after a crash the file itself says whether it was shared.
https://docs.slack.dev/messaging/working-with-files
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from threadline import Post
from threadline.channel.context import KeyValues
from threadline_slack.outbound.thread import Thread, error_of

if TYPE_CHECKING:
    from threadline_slack.bots import Bot
    from threadline_slack.inbound.decide import Place

__all__ = ["Upload"]

_GONE = frozenset({"file_not_found", "file_deleted"})


class Upload(Thread):
    """The thread, as a place to share one file."""

    def __init__(
        self, bot: Bot, place: Place, kv: KeyValues, *, name: str, title: str, content: bytes
    ) -> None:
        super().__init__(bot.client, place, bot.deleted)
        self._kv = kv
        self._name = name
        self._title = title
        self._content = content
        self.method = "files.completeUploadExternal"

    async def send(self, post: Post) -> str:
        """Send the bytes, then share the file; returns its id."""
        await self._look(post)
        where = await self._call(
            lambda: self._client.files_getUploadURLExternal(
                filename=self._name, length=len(self._content)
            )
        )
        file = str(where["file_id"])
        await self._transfer(str(where["upload_url"]))
        await self._kv.put(_key(post), file)
        await self._call(
            lambda: self._client.files_completeUploadExternal(
                files=[{"id": file, "title": self._title}],
                channel_id=self._place.channel,
                thread_ts=self._place.root,
            )
        )
        return file

    async def find(self, post: Post) -> str | None:
        """Return the file's id if it is in the conversation."""
        file = await self._kv.get(_key(post))
        if not isinstance(file, str):
            return None
        try:
            answer = await self._call(lambda: self._client.files_info(file=file))
        except Exception as error:
            if error_of(error) in _GONE:
                return None
            raise
        return file if self._place.channel in _places(answer["file"]) else None

    async def edit(self, ref: str, post: Post) -> None:
        """Do nothing: a file that is there stays as it is."""

    async def _transfer(self, url: str) -> None:
        http = self._client.session
        assert http is not None
        async with http.post(url, data=self._content) as answer:
            answer.raise_for_status()


def _key(post: Post) -> str:
    return f"upload/{post.id}"


def _places(file: dict[str, Any]) -> set[str]:
    """Return the conversations that a file is in."""
    found = {one for kind in ("channels", "groups", "ims") for one in file.get(kind) or ()}
    for shared in (file.get("shares") or {}).values():
        found |= set(shared)
    return found
