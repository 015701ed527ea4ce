"""Cut rendered text, mrkdwn or Markdown, into pieces within a limit.

``split`` packs whole units (a paragraph with its heading, a list item, a quote, a table, a block of
code) and cuts a unit only when it fits no piece: then between lines, sentences, words, and at last
between grapheme clusters. It never cuts within an entity, a ``<…>`` token, a link or an escape
unless that alone is over the limit. A block of code that is cut is closed and opened again.

Lengths are counted in UTF-16 units, as Slack's clients count, which is never less than the number
of characters. https://docs.slack.dev/reference/methods/chat.postMessage
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from wcwidth import iter_graphemes

__all__ = [
    "MARKDOWN_LIMIT",
    "MESSAGE_BLOCKS",
    "MESSAGE_LIMIT",
    "SECTION_LIMIT",
    "TEXT_LIMIT",
    "Chunk",
    "cut",
    "growing",
    "length",
    "split",
    "truncate",
]

TEXT_LIMIT = 4_000
"""What Slack recommends for ``text``, and what ``chat.update`` takes."""
MESSAGE_LIMIT = 40_000
"""Where Slack truncates ``text``."""
SECTION_LIMIT = 3_000
"""The text of a section block."""
MARKDOWN_LIMIT = 12_000
"""All markdown blocks of a message, and one call that appends to a stream."""
MESSAGE_BLOCKS = 50
"""The blocks of a message, counted after Slack has turned a markdown block into others."""

_LEAST = 80
_LONGEST_LANGUAGE = 40
_LONGEST_LEAD = 20
_BREAKERS = ("heading", "rule", "table")

_MARKER = r"(?:[-*+•◦▪☐☑]|\d{1,9}[.)])"
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(
    rf"(?P<lead>[ \t>]*(?:{_MARKER}[ \t]+)*)(?P<marks>`{{3,}}|~{{3,}})(?P<info>[^`\n]*)\n?\Z"
)
_KINDS = (
    ("heading", re.compile(r"[ \t>]*(?:#{1,6}[ \t]|\*[^*\n]+\*\s*\Z)")),
    ("rule", re.compile(r"[ \t]*(?:---|\*\*\*|___|─{6,})\s*\Z")),
    ("item", re.compile(rf"[ \t>]*{_MARKER}(?:[ \t]|\n?\Z)")),
    ("quote", re.compile(r"[ \t]*>")),
    ("table", re.compile(r"[ \t]*\|")),
)
_QUOTE_LEAD = re.compile(r"[ \t]*(?:>[ \t]?){1,9}")
_WHOLE = re.compile(r"&(?:amp|lt|gt);|<[^<>\n]+>|\[[^\[\]\n]*\]\([^()\s]*\)|\\[^\w\s]")
_BETTER_WHOLE = re.compile(
    r"(?<!`)(?P<ticks>`++)[^`\n]+(?P=ticks)(?!`)"
    r"|(?P<mark>\*\*|\*|__|_|~~|~)(?=\S)[^*_~`\n]+(?P=mark)"
)
_SENTENCE = re.compile(r"""[.!?…]["')\]»”]*\s+|[。！？]+""")
_SPACE = re.compile(r"\s+")


def length(text: str) -> int:
    """Return the number of UTF-16 units of the text."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece: ``body`` is its part of the text, between what reopens and closes code.

    The bodies of all pieces, joined, are the text that was split.
    """

    body: str
    opened: str = ""
    closed: str = ""

    @property
    def text(self) -> str:
        """What to post."""
        return self.opened + self.body + self.closed


def split(
    text: str, limit: int, *, tables: int | None = None, breakers: int | None = None
) -> list[Chunk]:
    """Return the text in pieces of at most ``limit`` UTF-16 units, code fences included.

    ``tables`` is the most Markdown tables, and ``breakers`` the most headings, rules and tables,
    that a piece holds. Raises ValueError for a limit under 80, which has no room for a fence.
    """
    if limit < _LEAST:
        raise ValueError(f"A limit of {limit} has no room for a code fence: give {_LEAST} or more.")
    packer = _Packer(limit, tables, breakers)
    for unit in _units(text):
        packer.add(unit)
    return packer.finish()


def cut(
    text: str, least: int, limit: int, *, tables: int | None = None, breakers: int | None = None
) -> tuple[Chunk, str]:
    """Return the first piece, and what opens code again in the next one.

    It is the first of :func:`split` unless that is shorter than ``least`` characters: these are
    said already, so a unit is cut behind them, at the best place within the limit.
    """
    pieces = split(text, limit, tables=tables, breakers=breakers)
    if len(pieces) > 1 and len(pieces[0].body) >= least:
        return pieces[0], pieces[1].opened
    at = 0
    for unit in _units(text):
        end = at + len(unit.text)
        if end >= least and (len(pieces) > 1 or end == len(text)):
            return _cut(text, at, unit, least, limit)
        at = end
    return Chunk(text), ""


def _cut(text: str, at: int, unit: _Unit, least: int, limit: int) -> tuple[Chunk, str]:
    """Cut a unit that starts at ``at`` behind the first ``least`` characters of the text."""
    cutter = _Cutter(unit, limit)
    room = limit - length(text[:at])
    end = cutter.cut(0, room, strict=False, least=least - at) or len(unit.text)
    body = text[: at + end]
    if end == len(unit.text) and (unit.fence is None or unit.ended):
        return Chunk(body), ""
    return Chunk(body, "", cutter.closing(body)), cutter.opening(end)


def growing(text: str) -> tuple[str, int]:
    """Return the kind of the unit that more text may change, and where it begins.

    It is ``blank``, and begins at the end, when all that is there is complete.
    """
    start, end, unit = 0, 0, _Unit("blank")
    for unit in _units(text):
        start, end = end, end + len(unit.text)
    if unit.kind == "blank" or (unit.fence and unit.ended and text.endswith("\n")):
        return "blank", end
    return unit.kind, start


def truncate(text: str, limit: int) -> str:
    """Return the text, or its first piece with an ellipsis when it is over the limit."""
    if length(text) <= limit:
        return text
    beginning = split(text, limit - 2)[0].text.rstrip()
    ends_code = _FENCE.match(beginning, beginning.rfind("\n") + 1)
    return beginning + ("\n…" if ends_code else " …")


@dataclass(frozen=True, slots=True)
class _Fence:
    """How a block of code opens: on its first line, and when it is opened again."""

    lead: str
    marks: str
    language: str

    @property
    def reopening(self) -> str:
        return f"{self.lead}{self.marks}{self.language}\n"

    def closing(self, body: str) -> str:
        """Return what closes the block behind a body that is cut off."""
        return ("" if body.endswith("\n") else "\n") + self.lead + self.marks

    def closes(self, line: str) -> bool:
        """True for the line that ends the block."""
        bare = line.strip(" \t>\n" if ">" in self.lead else " \t\n")
        return set(bare) == {self.marks[0]} and len(bare) >= len(self.marks)


@dataclass(slots=True)
class _Unit:
    """Lines that belong together: a paragraph, an item, a table, code; or a run of blank lines."""

    kind: str
    fence: _Fence | None = None
    ended: bool = False
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.lines)

    @property
    def closing(self) -> str:
        """What closes code that the whole text leaves open."""
        return self.fence.closing(self.lines[-1]) if self.fence and not self.ended else ""

    @property
    def size(self) -> int:
        return length(self.text) + length(self.closing)


def _units(text: str) -> Iterator[_Unit]:
    """Yield the text's units; joined, they are the text."""
    unit = _Unit("blank")
    for line in _LINE.findall(text):
        if unit.fence and not unit.ended:
            unit.ended = unit.fence.closes(line)
        elif not _continues(unit, line):
            if unit.lines:
                yield unit
            fence = _opening(line)
            unit = _Unit("fence" if fence else _kind(line), fence)
        elif unit.kind == "heading":
            unit.kind = "paragraph"
        unit.lines.append(line)
    if unit.lines:
        yield unit


def _kind(line: str) -> str:
    if not line.strip():
        return "blank"
    return next((kind for kind, pattern in _KINDS if pattern.match(line)), "paragraph")


def _continues(unit: _Unit, line: str) -> bool:
    """True when a line belongs to the unit before it, which is no code that is still open."""
    kind = "fence" if _FENCE.match(line) else _kind(line)
    if kind == "paragraph":
        return unit.kind in ("paragraph", "heading", "item", "quote")
    return kind == unit.kind in ("blank", "quote", "table")


def _opening(line: str) -> _Fence | None:
    found = _FENCE.match(line)
    if found is None:
        return None
    info = found["info"].split()
    return _Fence(
        lead=re.sub(r"[^\s>]", " ", found["lead"]),
        marks=found["marks"],
        language=info[0] if info and len(info[0]) <= _LONGEST_LANGUAGE else "",
    )


class _Packer:
    """Fills pieces with units, in order."""

    def __init__(self, limit: int, tables: int | None, breakers: int | None) -> None:
        self._limit = limit
        self._tables = tables
        self._breakers = breakers
        self._done: list[Chunk] = []
        self._opened = ""
        self._units: list[_Unit] = []
        self._kinds: Counter[str] = Counter()
        self._size = 0

    def add(self, unit: _Unit) -> None:
        """Put the unit into the piece at hand, or into the next, or into as many as it needs."""
        if unit.size > self._limit:
            self._add_in_parts(unit)
            return
        if not self._fits(unit):
            headings = self._take_headings(unit)
            self._flush()
            for heading in headings:
                self._take(heading)
        self._take(unit)

    def finish(self) -> list[Chunk]:
        """Return all pieces."""
        self._flush()
        return self._done

    def _fits(self, unit: _Unit) -> bool:
        tables, breakers = self._kinds["table"], sum(self._kinds[kind] for kind in _BREAKERS)
        return (
            self._size + unit.size <= self._limit
            and (self._tables is None or unit.kind != "table" or tables < self._tables)
            and (self._breakers is None or unit.kind not in _BREAKERS or breakers < self._breakers)
        )

    def _take(self, unit: _Unit) -> None:
        self._units.append(unit)
        self._kinds[unit.kind] += 1
        self._size += length(unit.text)

    def _take_headings(self, unit: _Unit) -> list[_Unit]:
        """Take the headings that end the piece off it, to go with the unit they stand over."""
        kept = end = len(self._units)
        while end and self._units[end - 1].kind in ("heading", "blank"):
            end -= 1
            kept = end if self._units[end].kind == "heading" else kept
        headings = self._units[kept:]
        if not kept or sum(taken.size for taken in headings) + unit.size > self._limit:
            return []
        del self._units[kept:]
        return headings

    def _flush(self) -> None:
        if self._units:
            body = "".join(unit.text for unit in self._units)
            self._done.append(Chunk(body, self._opened, self._units[-1].closing))
        self._begin("")

    def _begin(self, opened: str) -> None:
        self._opened, self._units, self._size = opened, [], length(opened)
        self._kinds.clear()

    def _add_in_parts(self, unit: _Unit) -> None:
        if self._limit - self._size < self._limit // 4:
            self._flush()
        cutter = _Cutter(unit, self._limit)
        at = 0
        while at < len(cutter.text):
            end = cutter.cut(at, self._limit - self._size, strict=bool(self._units))
            if end is None:
                self._flush()
                continue
            last = end == len(cutter.text)
            self._take(
                _Unit(unit.kind, cutter.fence, not last or unit.ended, [cutter.text[at:end]])
            )
            if not last:
                body = "".join(taken.text for taken in self._units)
                self._done.append(Chunk(body, self._opened, cutter.closing(body)))
                self._begin(cutter.opening(end))
            at = end


class _Cutter:
    """Finds where to cut a unit that is over the limit."""

    def __init__(self, unit: _Unit, limit: int) -> None:
        self.text = unit.text
        self._tail = unit.closing
        opener = unit.lines[0]
        # What leaves no room for code between its fences is cut as text is.
        self.fence = unit.fence if unit.fence and length(opener) <= limit // 4 else None
        self._opener = len(opener) if self.fence else 0
        around = _LONGEST_LEAD if unit.kind == "quote" else 0
        if self.fence:
            around = length(self.fence.reopening + self.fence.closing(""))
        self._hard = self._spans(_WHOLE, limit - around)
        self._soft = self._spans(_BETTER_WHOLE, limit // 4)

    def _spans(self, pattern: re.Pattern[str], longest: int) -> list[tuple[int, int]]:
        found = pattern.finditer(self.text)
        return [match.span() for match in found if length(match.group()) <= longest]

    def opening(self, at: int) -> str:
        """Return what a piece that starts here has to repeat: a fence, or the sign of a quote."""
        if self.fence:
            return self.fence.reopening
        start = self.text.rfind("\n", 0, at) + 1
        lead = _QUOTE_LEAD.match(self.text, start, at)
        return lead.group() if lead and start < at and len(lead.group()) <= _LONGEST_LEAD else ""

    def closing(self, body: str) -> str:
        """Return what a piece with this body has to add."""
        return self.fence.closing(body) if self.fence else ""

    def cut(self, at: int, room: int, *, strict: bool, least: int = 0) -> int | None:
        """Return where to end the part that starts at ``at`` and has so much room.

        None, when ``strict``, for want of a good place: a piece of its own has more room. It is
        not before ``least``.
        """
        if length(self.text[at:] + self._tail) <= room:
            return len(self.text)
        stop = _advanced(self.text, at, room - length(self.closing("")))
        cuts = [at + end for end in _graphemes(self.text[at : stop + 1])]
        cuts = [cut for cut in cuts if max(at, self._opener) < cut <= stop and cut >= least]
        good = [cut for cut in cuts if not _is_within(cut, self._hard)]
        better = [cut for cut in good if not _is_within(cut, self._soft)]
        best = self._best(at, stop, better)
        if best is not None or strict:
            return best
        anywhere = stop - 1 if _splits_pair(self.text, stop) else stop
        return (better or good or cuts or [max(anywhere, least)])[-1]

    def _best(self, at: int, stop: int, cuts: list[int]) -> int | None:
        """Return the last cut of the best kind that leaves a part that is not too short."""
        lines = {cut for cut in cuts if self.text[cut - 1] == "\n"}
        if self.fence:
            return max(lines, default=None)
        for kind in (lines, self._after(_SENTENCE, at, stop), self._after(_SPACE, at, stop)):
            allowed = [cut for cut in cuts if cut in kind and cut - at > (stop - at) // 2]
            if allowed:
                return allowed[-1]
        return None

    def _after(self, pattern: re.Pattern[str], at: int, stop: int) -> set[int]:
        return {found.end() for found in pattern.finditer(self.text, at, stop)}


def _is_within(cut: int, spans: list[tuple[int, int]]) -> bool:
    """True for a cut through one of the spans, which are in order and do not overlap."""
    before = bisect_left(spans, (cut, 0)) - 1
    return before >= 0 and spans[before][1] > cut


def _advanced(text: str, at: int, room: int) -> int:
    """Return the furthest index that is at most ``room`` UTF-16 units away, one at least."""
    stop = min(len(text), at + room)
    while stop > at + 1 and (excess := length(text[at:stop]) - room) > 0:
        stop = max(at + 1, stop - (excess + 1) // 2)
    return stop


def _graphemes(text: str) -> Iterator[int]:
    """Yield where each grapheme cluster ends, and half a surrogate pair never does."""
    end = 0
    for cluster in iter_graphemes(text):
        end += len(cluster)
        if not _splits_pair(text, end):
            yield end


def _splits_pair(text: str, at: int) -> bool:
    return "\ud800" <= text[at - 1 : at] <= "\udbff" and "\udc00" <= text[at : at + 1] <= "\udfff"
