"""How the Web API says no."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Refusal", "invalid"]


class Refusal(Exception):
    """An answer that is not ok: ``error`` and whatever else goes with it, usually with HTTP 200."""

    def __init__(
        self,
        error: str,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(error)
        self.error = error
        self.status = status
        self.headers = dict(headers or {})
        self.more = more

    @property
    def body(self) -> dict[str, Any]:
        """The JSON of the answer."""
        return {"ok": False, "error": self.error, **self.more}


def invalid(*messages: str, error: str = "invalid_arguments") -> Refusal:
    """Return a refusal that lists what is wrong with the arguments."""
    return Refusal(
        error,
        response_metadata={
            "messages": [
                message if message.startswith("[") else f"[ERROR] {message}" for message in messages
            ]
        },
    )
