"""Markdown from somebody who wants to ping everyone, as strategies and as a check."""

from __future__ import annotations

import re

from hypothesis import strategies as st

PIECES = st.sampled_from(
    [
        *[
            "<!channel>",
            "<!here|here>",
            "<!everyone>",
            "<!subteam^S0GROUP001|@ops>",
            "<@U0HUMAN002>",
        ],
        *[
            "<@U0HUMAN002|x>",
            "<#C0CHAN0002>",
            "<!date^0^x|<!here>>",
            "<@U2|<@U3>>",
            "@here ",
            "@channel",
            "@everyone",
        ],
        *["&lt;!channel&gt;", "&amp;lt;!here&amp;gt;", "\\<!here>", "<", ">", "|", "&", ";"],
        *[
            "[a](",
            "](",
            ")",
            "[",
            "]",
            "![",
            "javascript:alert(1)",
            "https://x.test/",
            "<https://x.test|",
        ],
        *[
            "<javascript:x|y>",
            "data:text/html,x",
            "mailto:a@b.test",
            "<a@b.test>",
            "[x]: javascript:y\n",
        ],
        *[
            "`",
            "``",
            "```",
            "```\n",
            "~~~\n",
            "    ",
            "\n",
            "\n\n",
            "> ",
            "- ",
            "1. ",
            "# ",
            "| ",
            "|-|-|\n",
        ],
        *[
            "**",
            "*",
            "_",
            "~~",
            "\\",
            "\u6f22",
            "\uff1a",
            "word",
            " ",
            "<b>",
            "<br>",
            "<!--",
            "-->",
        ],
        *["\u200b", "\u202e", "\x00", "\ufdd0", "\ud83d", "\U0001f600", "<!DOCTYPE x>", "</", "/>"],
    ]
)
MARKDOWN = st.lists(PIECES | st.text(max_size=8), max_size=40).map("".join)

_SAFE_TOKEN = re.compile(r"<(?:https?://|mailto:)[^<>\s|]+(?:\|[^<>]*)?>")
_ALLOWED = "U0ALLOWED1"


def live_in_mrkdwn(text: str, allowed: str | None = None) -> list[str]:
    """Return what in a mrkdwn text Slack could act on, safe links and quotes apart."""
    if allowed:
        text = text.replace(f"<@{allowed}>", "")
    text = _SAFE_TOKEN.sub("", text)
    text = re.sub(r"^> ?", "", text, flags=re.MULTILINE)
    return re.findall(r"<[^\n]{0,20}|[^\n]{0,20}>", text)


def live_tokens(text: str) -> list[str]:
    """Return what in any text that Slack reads is or starts a live token."""
    kinds = "@[UW]|#[CDG]|!(?:here|channel|everyone|group|subteam|date)"
    return re.findall(rf"<(?:{kinds})[^<>]*>?", text)
