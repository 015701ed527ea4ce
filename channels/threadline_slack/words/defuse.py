"""Text out, as it is written: Markdown for a stream, with what must not be live defused.

A stream is appended to, never rewritten, so this changes as little as it can and is stable: what
it returns for a beginning of a text (``final=False``) is a beginning of what it returns for the
whole. It holds back an end that is not decided yet, such as ``<@U1`` or ``](java``.
https://docs.slack.dev/reference/methods/chat.appendStream
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from threadline_slack.words.tokens import (
    BROADCASTS,
    LIVE,
    OPENING,
    ZERO_WIDTH_SPACE,
    broken_up,
    clean,
    inert_words,
    mention_or_words,
)

__all__ = ["defuse"]

_UNSAFE_SCHEME = r"(?!(?i:https?|mailto):)[A-Za-z][A-Za-z0-9+.-]*:"
_SPAN = re.compile(
    r"(?P<code>(?<!`)(?P<ticks>`++)[^`\n]+(?P=ticks)(?!`))"
    rf"|(?P<target>\](?:\(|:)[ \t]*<?{_UNSAFE_SCHEME})"
    rf"|(?P<autolink><{_UNSAFE_SCHEME})"
    rf"|(?P<words>@(?i:{'|'.join(BROADCASTS)})\b)"
    rf"|(?P<token>{LIVE.pattern})"
    rf"|(?P<opening>{OPENING.pattern})"
)
_UNDECIDED = re.compile(
    r"(?:`[^\n]*|<(?:[@#!][^<>\n]*|[A-Za-z0-9+.-]*)"
    r"|\](?:[(:][ \t]*<?[A-Za-z0-9+.-]*)?|@[A-Za-z]*)\Z"
)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_LEAD = re.compile(r"[ \t>]*(?:(?:[-*+]|\d+[.)])[ \t]+)*")
_FENCE = re.compile(r"(?:(`{3,})[^`\n]*|(~{3,})[^\n]*)\n?\Z")


def defuse(
    markdown: str,
    *,
    mentions: Collection[str] = (),
    names: Mapping[str, str] | None = None,
    final: bool = True,
) -> str:
    """Return Markdown in which only ``mentions`` are live and only safe links are links.

    With ``final=False`` the text is a beginning, and an undecided end of it is left out.
    """
    if not final:
        markdown = markdown.rstrip("".join(map(chr, range(0xD800, 0xDC00))))
    said = []
    fence, quoted = "", False
    for line in _LINE.findall(clean(markdown)):
        whole = final or line.endswith("\n")
        lead = _LEAD.match(line)[0]  # type: ignore[index]  # it matches the empty text
        opening = _FENCE.match(line, len(lead))
        if quoted and ">" not in lead:
            fence, quoted = "", False
        if fence:
            said.append(broken_up(line if whole else _decided(line, 0)))
            bare = line.strip(" \t>\n" if quoted else " \t\n")
            if set(bare) == {fence[0]} and len(bare) >= len(fence):
                fence, quoted = "", False
        elif not whole and (opening or line[len(lead) :] in ("~", "~~")):
            said.append(lead)
        elif opening:
            fence, quoted = opening.group(1) or opening.group(2), ">" in lead
            said.append(broken_up(line))
        else:
            said.append(_inline(line, whole, mentions, names or {}))
    return "".join(said)


def _inline(line: str, whole: bool, mentions: Collection[str], names: Mapping[str, str]) -> str:
    if not whole:
        line = _decided(line, _settled(line))
    return _SPAN.sub(lambda found: _defused(found, mentions, names), line)


def _settled(line: str) -> int:
    """Return where the last part ends that more text cannot change."""
    end = seen = 0
    for found in _SPAN.finditer(line):
        if "`" in line[seen : found.start()] or found.end() == len(line):
            break
        seen = found.end()
        end = end if found.lastgroup == "opening" else seen
    return end


def _decided(line: str, start: int) -> str:
    undecided = _UNDECIDED.search(line, start)
    return line[: undecided.start()] if undecided else line


def _defused(found: re.Match[str], mentions: Collection[str], names: Mapping[str, str]) -> str:
    text = found.group()
    match found.lastgroup:
        case "code" | "ticks":
            return broken_up(text)
        case "target" | "autolink" | "opening":
            return text[0] + ZERO_WIDTH_SPACE + text[1:]
        case "words":
            return inert_words(text)
        case _:
            return mention_or_words(found, mentions, names)[0]
