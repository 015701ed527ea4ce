"""What a tool returns to show more than text: Block Kit in the conversation.

https://docs.slack.dev/block-kit
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator

__all__ = ["SlackMessage"]

_OURS = "threadline:"


class SlackMessage(BaseModel):
    """The result of a tool that is shown in the conversation; the model reads it as JSON.

    ``text`` is Markdown, for notifications and for where the blocks cannot be shown. ``blocks`` are
    shown as they are, so escape what comes from outside; at most 50, as Slack allows a message.
    Raises ValueError for an ``action_id`` of the channel's own, ``threadline:…``.
    """

    type: Literal["slack_message"] = "slack_message"
    text: str = Field(min_length=1, max_length=12_000)
    blocks: list[dict[str, Any]] = Field(default_factory=list, max_length=50)

    @field_validator("blocks")
    @classmethod
    def _not_the_channels(cls, blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if any(action.startswith(_OURS) for action in _actions(blocks)):
            raise ValueError(f"An action_id must not begin with {_OURS!r}, the channel's own.")
        return blocks


def _actions(value: Any) -> Iterator[str]:
    """Yield the action ids within blocks."""
    if isinstance(value, dict):
        action = value.get("action_id")
        if isinstance(action, str):
            yield action
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _actions(item)
