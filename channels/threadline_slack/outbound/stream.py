"""What of a growing text stands in which message of a stream; no I/O.

A message only ever grows, lives about five minutes and holds so much. So each is left in time, at a
place that cuts no code, table, link or word, and the next one goes on behind it: the messages,
joined, are the text, with code that is cut closed and opened again.
https://docs.slack.dev/reference/methods/chat.startStream
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from threadline_slack.words.chunks import MESSAGE_BLOCKS, cut, growing, length, split
from threadline_slack.words.defuse import defuse

__all__ = ["Growth", "Step", "visible"]

MOST = 11_500
"""UTF-16 units of a message; 12,000 are refused, and what closes code has to fit in."""
ENOUGH = 9_000
"""From here on a message is left at the end of a paragraph."""
LATE, LATEST = 210.0, 270.0
"""Seconds: from when on it is left at the end of a paragraph, and anywhere. It dies at 300."""
_BREAKERS = MESSAGE_BLOCKS // 2 - 1

# What more text may still turn into something else: a link, an entity, the rest of a word.
_OPEN = re.compile(r"(?:\\|\[[^\[\]\n]{0,200}(?:\](?:\([^()\n]{0,500})?)?|\S{1,80})\Z")


def visible(source: str, mentions: Collection[str] = ()) -> str:
    """Return what can be shown of the beginning of a text, defused; more text only adds to it."""
    text = defuse(source, mentions=mentions, final=False)
    kind, start = growing(text)
    if kind == "table":
        return text[:start]
    unfinished = _OPEN.search(text)
    return text[: unfinished.start()] if unfinished else text


@dataclass(frozen=True, slots=True)
class Step:
    """What to add to the message; ``closes`` that this is its end.

    ``said`` is how much of the text the message has said then, with what it began with, and
    ``opened`` is what the next one begins with.
    """

    text: str
    closes: bool = False
    said: int = 0
    opened: str = ""


@dataclass(frozen=True, slots=True)
class Growth:
    """The messages so far: whole ``parts``, and what the last one shows.

    ``before`` is the text that the parts have said.
    """

    parts: tuple[str, ...] = ()
    before: str = ""
    opened: str = ""
    shown: str = ""

    def step(self, text: str, age: float = 0.0) -> Step | None:
        """Return what to do next, None for nothing: also when the text is another one now.

        ``age`` is of the message that is open, in seconds.
        """
        rest = self._rest(text)
        if rest is None:
            return None
        if self.shown.startswith(rest):
            rest = self.shown
        if (age >= LATEST and self.shown) or not _fits(rest):
            return self._closing(rest)
        if age >= LATE or length(rest) > ENOUGH:
            _, end = growing(rest)
            if end >= len(self.shown) and rest[:end].strip():
                return Step(rest[len(self.shown) : end], True, end)
        added = rest[len(self.shown) :]
        return Step(added) if added and rest[len(self.opened) :].strip() else None

    def after(self, step: Step, text: str) -> Growth:
        """Return what is there once a step of ``text`` was made."""
        shown = self.shown + step.text
        if not step.closes:
            return replace(self, shown=shown)
        start = len(self.before)
        lead = len(self.opened) or len(text) - start - len(text[start:].lstrip("\n"))
        end = start + step.said + (-lead if self.opened else lead)
        return Growth((*self.parts, shown), text[:end], step.opened)

    def cut_off(self, text: str) -> Growth:
        """Return what is there when nothing can be added any more to the message as it stands."""
        if not self.shown:
            return self
        step = self._closing(self.shown)
        return self.after(step, text)

    def finish(self, text: str) -> list[str] | None:
        """Return what each message has to say once the text is whole; None if it is another one."""
        rest = self._rest(text)
        if rest is None or not rest.startswith(self.shown):
            return None
        if not _fits(rest):
            return self.after(self._closing(rest), text).finish(text)
        if not rest[len(self.opened) :].strip("`~> \t\n" if self.opened else None):
            return list(self.parts)
        return [*self.parts, split(rest, MOST)[0].text]

    def _rest(self, text: str) -> str | None:
        """Return what the open message would say if it said all; None when the text is another."""
        if not text.startswith(self.before):
            return None
        rest = text[len(self.before) :]
        rest = self.opened + rest if self.opened else rest.lstrip("\n")
        return rest if rest.startswith(self.shown) or self.shown.startswith(rest) else None

    def _closing(self, rest: str) -> Step:
        least = max(len(self.shown), min(len(self.opened) + 1, len(rest)))
        chunk, opened = cut(rest, least, MOST, tables=1, breakers=_BREAKERS)
        added = chunk.text[len(self.shown) :]
        return Step(added, True, len(chunk.body), opened)


def _fits(text: str) -> bool:
    return len(split(text, MOST, tables=1, breakers=_BREAKERS)) <= 1
