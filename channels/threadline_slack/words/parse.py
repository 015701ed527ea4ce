"""Markdown as models write it to a tree: CommonMark, tables, strikethrough, and own rules.

* A Slack token (``<@U1>``, ``<!here>``, ``<https://…|label>``) is read as what it is, so that the
  renderers can decide what becomes of it; without this it would be HTML or a broken link.
* A bare URL is a link, and ends before CJK punctuation, which follows it without a space.
* Emphasis opens and closes next to CJK characters (``**重点：**内容``), which CommonMark's rules,
  made for words between spaces, refuse.
* Every link target is kept; the renderers link only what is safe.

Blocks of HTML are not recognised: what stands in them is Markdown more often than not.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline, emphasis, strikethrough
from markdown_it.tree import SyntaxTreeNode

from threadline_slack.words.tokens import LIVE, clean

__all__ = ["is_cjk", "parse", "safe_url"]

_LABELLED = re.compile(r"<((?:https?://|mailto:)[^<>|\s]+)\|([^<>\n]+)>", re.IGNORECASE)
_SCHEME = re.compile(r"(?<![A-Za-z0-9])https?$", re.IGNORECASE)
_URL_REST = re.compile(
    r"://[^\s<>`\x00-\x20\u200b\u3000-\u3004\u3008-\u3020\uff01-\uff0f\uff1a-\uff1f]+"
)
_TRAILING = "?!.,:;*_~'\""
_SAFE = re.compile(r"(?:https?://[^\s/]|mailto:[^\s])[^\s]*", re.IGNORECASE)
_UNSAFE_IN_TOKEN = re.compile(r"[<>|\"`]")
_LONGEST_URL = 2_000
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def parse(markdown: str) -> SyntaxTreeNode:
    """Return the tree of a Markdown text; nodes of type ``slack`` have their match in ``meta``."""
    return SyntaxTreeNode(_parser().parse(clean(markdown)))


def safe_url(url: str) -> str | None:
    """Return the URL fit for a token or a link target, or None when it must not be a link.

    Only http, https and mailto, without control characters and of at most 2,000 characters, which
    fit a section; what could end the token early is percent-encoded.
    """
    url = url.strip()
    if _CONTROLS.search(url) or not _SAFE.fullmatch(url):
        return None
    url = _UNSAFE_IN_TOKEN.sub(lambda found: f"%{ord(found.group()):02X}", url)
    return url if len(url) <= _LONGEST_URL else None


def is_cjk(char: str) -> bool:
    """True for the characters of Chinese, Japanese and Korean text, their punctuation included."""
    return (
        unicodedata.east_asian_width(char) in "WF" and unicodedata.category(char) != "So"
    ) or "\uff61" <= char <= "\uffdc"


class _Parser(MarkdownIt):
    """Keeps every target as it was written; what may be linked is for `safe_url` to say."""

    def validateLink(self, url: str) -> bool:  # noqa: N802 the library's name
        return True

    def normalizeLink(self, url: str) -> str:  # noqa: N802
        return url.replace(" ", "%20")

    def normalizeLinkText(self, link: str) -> str:  # noqa: N802
        return link


@functools.cache
def _parser() -> MarkdownIt:
    # One tilde strikes nothing through: it says "about" more often.
    parser = _Parser("commonmark").enable(["table", "strikethrough"]).disable("html_block")
    rules = parser.inline.ruler
    rules.before("autolink", "slack", _slack_token)
    rules.before("escape", "bare_url", _bare_url)
    rules.at("emphasis", _emphasis)
    rules.at("strikethrough", _strikethrough)
    return parser


def _slack_token(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] != "<":
        return False
    labelled = _LABELLED.match(state.src, state.pos)
    found = labelled or LIVE.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        if labelled is not None:
            _push_link(state, labelled.group(1), labelled.group(2))
        else:
            state.push("slack", "", 0).meta["found"] = found
    state.pos = found.end()
    return True


def _bare_url(state: StateInline, silent: bool) -> bool:
    if silent or state.linkLevel > 0 or not state.src.startswith("://", state.pos):
        return False
    scheme = _SCHEME.search(state.pending[-6:])
    found = _URL_REST.match(state.src, state.pos)
    if scheme is None or found is None:
        return False
    rest = _trimmed(found.group())
    if len(rest) <= len("://"):
        return False
    state.pending = state.pending.removesuffix(scheme.group())
    url = scheme.group() + rest
    _push_link(state, url, url, markup="autolink")
    state.pos += len(rest)
    return True


def _trimmed(url: str) -> str:
    """Return the URL without what more likely belongs to the sentence around it."""
    for run in ("**", "~~"):
        url = url.split(run, 1)[0]
    while True:
        shorter = url.rstrip(_TRAILING)
        if shorter.endswith(")") and shorter.count(")") > shorter.count("("):
            shorter = shorter[:-1]
        if shorter.endswith("]") and shorter.count("]") > shorter.count("["):
            shorter = shorter[:-1]
        if shorter == url:
            return url
        url = shorter


def _push_link(state: StateInline, url: str, label: str, markup: str = "") -> None:
    opening = state.push("link_open", "a", 1)
    opening.attrs = {"href": url}
    opening.markup = markup
    state.push("text", "", 0).content = label
    state.push("link_close", "a", -1)


def _emphasis(state: StateInline, silent: bool) -> bool:
    return _beside_cjk(state, silent, emphasis.tokenize)


def _strikethrough(state: StateInline, silent: bool) -> bool:
    return _beside_cjk(state, silent, strikethrough.tokenize)


def _beside_cjk(
    state: StateInline, silent: bool, tokenize: Callable[[StateInline, bool], bool]
) -> bool:
    """Let a run of ``*`` or ``~`` between CJK characters open and close what spaces allow."""
    start, known = state.pos, len(state.delimiters)
    if not tokenize(state, silent):
        return False
    before = state.src[start - 1] if start else " "
    after = state.src[state.pos] if state.pos < state.posMax else " "
    if state.src[start] != "_" and (is_cjk(before) or is_cjk(after)):
        for delimiter in state.delimiters[known:]:
            delimiter.open = delimiter.open or not after.isspace()
            delimiter.close = delimiter.close or not before.isspace()
    return True
