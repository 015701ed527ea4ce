"""What people wrote themselves in a Markdown text: no quotes, no code, no hidden comments.

https://github.github.com/gfm/
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

__all__ = ["Command", "command", "mentions", "prose"]

_COMMAND = re.compile(r"/([A-Za-z][A-Za-z0-9-]*)(?:[ \t]+(.*))?")
_TAG = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<(?P<close>/?)(?P<name>[A-Za-z][\w-]{0,30})?"
    r"(?:\"[^\"]{0,300}+\"|[^>\"]|\"(?![^\"]{0,300}+\")){0,300}+>",
    re.DOTALL,
)
"""Each part can be read in one way only, and none is tried again: no text makes it slow."""
_HIDING = frozenset({"blockquote", "code", "kbd", "pre", "samp", "script", "style", "textarea"})
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{0,20}://\S+", re.IGNORECASE)
_MOST = 70_000  # characters; GitHub takes 65,536 in a comment

Command = tuple[str, str]
"""A command's name in lower case, and what follows on its line."""


@functools.cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


@functools.lru_cache(maxsize=8)
def prose(markdown: str) -> tuple[str, ...]:
    """Return the text outside of quotes, code and HTML comments, paragraph by paragraph."""
    tokens = _parser().parse(markdown[:_MOST].replace("\r\n", "\n"))
    return tuple(text for text in _texts(tokens) if text.strip())


def _texts(tokens: list[Token]) -> Iterator[str]:
    quotes, hiding = 0, _Hiding()
    for token in tokens:
        if token.type == "blockquote_open":
            quotes += 1
        elif token.type == "blockquote_close":
            quotes -= 1
        elif quotes == 0 and token.type == "inline":
            yield _spoken(token.children or [], hiding)
        elif quotes == 0 and token.type == "html_block":
            yield hiding.read(token.content)


def _spoken(tokens: list[Token], hiding: _Hiding) -> str:
    """Return the words of a paragraph; code and HTML leave a gap, which nothing reaches across."""
    parts = []
    for token in tokens:
        if token.type == "text":
            parts.append("" if hiding.hides else token.content)
        elif token.type in ("softbreak", "hardbreak"):
            parts.append("\n")
        elif token.type == "html_inline":
            hiding.read(token.content)
            parts.append("\x00")
        elif token.type in ("code_inline", "image"):
            parts.append("\x00")
    return "".join(parts)


class _Hiding:
    """Which quotes and code, written as HTML, are open."""

    def __init__(self) -> None:
        self._open: list[str] = []

    @property
    def hides(self) -> bool:
        """True while what is read stands in a quote or in code."""
        return bool(self._open)

    def read(self, html: str) -> str:
        """Return what is said between tags and outside of quotes and code."""
        said, end = [], 0
        for tag in _TAG.finditer(html):
            said.append("" if self._open else html[end : tag.start()])
            end = tag.end()
            self._take(tag)
        said.append("" if self._open else html[end:])
        return "\x00".join(said)

    def _take(self, tag: re.Match[str]) -> None:
        name = (tag["name"] or "").lower()
        if name not in _HIDING:
            return
        if not tag["close"]:
            self._open.append(name)
        elif name in self._open:
            del self._open[len(self._open) - 1 - self._open[::-1].index(name) :]


def mentions(markdown: str, login: str) -> bool:
    """Tell whether somebody is mentioned in visible prose, whatever the letter case.

    An App is mentioned without its ``[bot]``. An address, or a longer name, is no mention.
    """
    name = re.escape(login.removesuffix("[bot]"))
    pattern = re.compile(rf"(?<![\w@./`-])@{name}(?:\[bot\])?(?![\w@/-]|\.\w)", re.IGNORECASE)
    return any(pattern.search(_URL.sub("\x00", text)) for text in prose(markdown))


def command(markdown: str, names: Collection[str] | None = None) -> Command | None:
    """Return the first ``/name …`` that stands at the beginning of a line of visible prose.

    ``names`` are those that count, in lower case; None for any.
    """
    for text in prose(markdown):
        for line in text.split("\n"):
            found = _COMMAND.fullmatch(line.strip())
            if found is not None and (names is None or found[1].lower() in names):
                return found[1].lower(), (found[2] or "").strip()
    return None
