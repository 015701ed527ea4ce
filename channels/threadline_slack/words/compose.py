"""Text out, whole: Markdown to the messages to post, each within every limit of Slack.

A message has blocks for those who can see them and a ``text`` for those who cannot; give both to
``chat.postMessage`` and to ``chat.update``, which otherwise keeps the blocks that were there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from threadline_slack.words.chunks import (
    MARKDOWN_LIMIT,
    MESSAGE_BLOCKS,
    SECTION_LIMIT,
    TEXT_LIMIT,
    split,
    truncate,
)
from threadline_slack.words.markdown import TABLE_CHARACTERS, markdown
from threadline_slack.words.render import mrkdwn

__all__ = ["Form", "Message", "compose"]

Form = Literal["markdown", "mrkdwn"]

# A heading, rule or table becomes a block of its own, and so does what stands between two of them.
_BREAKERS = MESSAGE_BLOCKS // 2 - 1
_LARGEST = 11_500  # characters; the sum over a message's blocks is refused a little above 12,000


@dataclass(frozen=True, slots=True)
class Message:
    """What to post: ``text`` is mrkdwn of at most 4,000 characters."""

    text: str
    blocks: list[dict[str, Any]]


def compose(
    source: str,
    *,
    form: Form = "markdown",
    mentions: Collection[str] = (),
    names: Mapping[str, str] | None = None,
    limit: int | None = None,
) -> list[Message]:
    """Return the messages that say what the Markdown says, in order; none for an empty one.

    ``form`` is what the blocks hold: one markdown block a message, or sections of mrkdwn, for a
    server that refuses the former. ``limit`` is the most characters of a message: 4,000 for mrkdwn
    and 11,500 for markdown, if not given. The ``text`` of a longer markdown block is its beginning.
    """
    if form == "mrkdwn":
        most = min(limit or TEXT_LIMIT, TEXT_LIMIT)
        pieces = split(mrkdwn(source, mentions=mentions, names=names), most)
        texts = [piece.text.strip("\n") for piece in pieces if piece.text.strip()]
        return [Message(text, _sections(text)) for text in texts]
    most = min(limit or _LARGEST, MARKDOWN_LIMIT)
    whole = markdown(
        source, mentions=mentions, names=names, table_characters=min(most, TABLE_CHARACTERS)
    )
    pieces = split(whole, most, tables=1, breakers=_BREAKERS)
    texts = [piece.text.strip("\n") for piece in pieces if piece.text.strip()]
    return [
        Message(
            truncate(mrkdwn(text, mentions=mentions, names=names), TEXT_LIMIT),
            [{"type": "markdown", "text": text}],
        )
        for text in texts
    ]


def _sections(text: str) -> list[dict[str, Any]]:
    return [
        {"type": "section", "text": {"type": "mrkdwn", "text": piece.text.strip("\n")}}
        for piece in split(text, SECTION_LIMIT)
        if piece.text.strip()
    ]
