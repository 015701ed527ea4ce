"""Files on their way in: the addresses given out, and what was sent there."""

from __future__ import annotations

import mimetypes

from threadline_slack.testing.model import StoredFile
from threadline_slack.testing.state import State

__all__ = ["Uploads"]


class Uploads:
    """Gives an address for each file to come, once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._waiting: dict[str, str] = {}

    def expect(self, name: str, size: int, *, user: str, team: str) -> tuple[StoredFile, str]:
        """Return a file to come and the address to send it to."""
        file = self.make(name, user=user, team=team)
        file.size = size
        token = self._state.mint("upload-")
        self._waiting[token] = file.id
        return file, f"{self._state.url}/upload/v1/{token}"

    def make(self, name: str, *, user: str, team: str, content: bytes | None = None) -> StoredFile:
        """Return a new file."""
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        file = StoredFile(
            self._state.mint("F"),
            team,
            name,
            name,
            user,
            len(content or b""),
            self._state.now(),
            kind,
            content,
        )
        self._state.files[file.id] = file
        return file

    def receive(self, token: str, content: bytes) -> bool:
        """Keep what was sent to an address; returns whether there is such an address."""
        identity = self._waiting.pop(token, None)
        if identity is None:
            return False
        file = self._state.files[identity]
        file.content, file.size = content, len(content)
        return True
