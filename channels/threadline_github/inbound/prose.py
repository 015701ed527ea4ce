"""What people wrote themselves in a Markdown text: no quotes, no code, no hidden comments.

https://github.github.com/gfm/
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

__all__ = ["Command", "command", "mentions", "prose"]

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_COMMAND = re.compile(r"/([A-Za-z][A-Za-z0-9-]*)(?:[ \t]+(.*))?")
_TAG = re.compile(r"<[^>]*>")
_MOST = 70_000  # characters; GitHub takes 65,536 in a comment

Command = tuple[str, str]
"""A command's name in lower case, and what follows on its line."""


@functools.cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def prose(markdown: str) -> list[str]:
    """Return the text outside of quotes, code and HTML comments, paragraph by paragraph."""
    tokens = _parser().parse(markdown[:_MOST].replace("\r\n", "\n"))
    return [text for text in _texts(tokens) if text.strip()]


def _texts(tokens: list[Token]) -> Iterator[str]:
    quotes = 0
    for token in tokens:
        if token.type == "blockquote_open":
            quotes += 1
        elif token.type == "blockquote_close":
            quotes -= 1
        elif quotes == 0 and token.type == "inline":
            yield _spoken(token.children or [])
        elif quotes == 0 and token.type == "html_block":
            yield _TAG.sub("", _COMMENT.sub("", token.content))


def _spoken(tokens: list[Token]) -> str:
    """Return the words of a paragraph; code and HTML leave a gap, which nothing reaches across."""
    parts = []
    for token in tokens:
        if token.type == "text":
            parts.append(token.content)
        elif token.type in ("softbreak", "hardbreak"):
            parts.append("\n")
        elif token.type in ("code_inline", "html_inline", "image"):
            parts.append("\x00")
    return "".join(parts)


def mentions(markdown: str, login: str) -> bool:
    """Tell whether somebody is mentioned in visible prose, whatever the letter case.

    An App is mentioned without its ``[bot]``. An address, or a longer name, is no mention.
    """
    name = re.escape(login.removesuffix("[bot]"))
    pattern = re.compile(rf"(?<![\w@./`-])@{name}(?:\[bot\])?(?![\w@/-]|\.\w)", re.IGNORECASE)
    return any(pattern.search(text) for text in prose(markdown))


def command(markdown: str) -> Command | None:
    """Return the first ``/name …`` that stands at the beginning of a line of visible prose."""
    for text in prose(markdown):
        for line in text.split("\n"):
            found = _COMMAND.fullmatch(line.strip())
            if found is not None:
                return found[1].lower(), (found[2] or "").strip()
    return None
