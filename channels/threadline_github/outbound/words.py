"""The agent's words as they may stand in public: no team is called, no marker is forged; no I/O.

A login that the agent names is a mention, as anybody's would be. A team is many people, none of
whom has asked for anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from threadline_github.outbound.fences import code_lines, normal
from threadline_github.outbound.markers import disarm

__all__ = ["code", "public", "quoted"]

_NOBODY = "\u200b"
_CROWDS = "all|channel|everyone|here|team"
_CALL = re.compile(
    rf"(?<![\w@./-])@(?=[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9]|(?i:{_CROWDS})(?![\w/-]))"
)
_TICKS = re.compile(r"`+")
_PARAGRAPH = re.compile(r"(\n[ \t]*\n)")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(r"`{3,}")


def public(markdown: str) -> str:
    """Return Markdown from the model that mentions no team, and holds no marker."""
    text = disarm(normal(markdown))
    if "@" not in text:
        return text
    inside = code_lines(text)
    said, prose = [], ""
    for number, line in enumerate(_LINE.findall(text)):
        if number in inside:
            said += [_defused(prose), line]
            prose = ""
        else:
            prose += line
    return "".join([*said, _defused(prose)])


def code(text: str, language: str = "") -> str:
    """Return a block of code that nothing in the text ends."""
    marks = "`" * max([3, *(len(found) + 1 for found in _FENCE.findall(text))])
    return f"{marks}{language}\n{text}\n{marks}"


def quoted(text: str) -> str:
    """Return a short text as inline code, on one line."""
    plain = " ".join(text.split())
    ticks = "`" * (max([0, *(len(found) for found in _TICKS.findall(plain))]) + 1)
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{ticks}{pad}{plain}{pad}{ticks}"


def _defused(prose: str) -> str:
    parts = [
        part if inside else _CALL.sub(f"@{_NOBODY}", part)
        for paragraph in _PARAGRAPH.split(prose)
        for part, inside in _spans(paragraph)
    ]
    return "".join(parts)


def _spans(paragraph: str) -> Iterator[tuple[str, bool]]:
    """Yield the pieces of a paragraph, and whether each is inline code."""
    runs = list(_TICKS.finditer(paragraph))
    others: dict[int, list[int]] = {}
    for number in reversed(range(len(runs))):
        others.setdefault(len(runs[number][0]), []).append(number)
    at = number = 0
    while number < len(runs):
        later = others[len(runs[number][0])]
        while later and later[-1] <= number:
            later.pop()
        if not later:
            number += 1
            continue
        start, end = runs[number].start(), runs[later[-1]].end()
        yield paragraph[at:start], False
        yield paragraph[start:end], True
        at, number = end, later[-1] + 1
    yield paragraph[at:], False
