r"""The log's line format: encode, scan, bisect and repair; pure functions over bytes.

A line is strict JSON in UTF-8 that ends in ``\n``, and nothing else ends a line: NaN, lone
surrogates and the raw separators U+2028, U+2029 and U+0085 never appear in it. Lines are told apart
by the byte ``\n`` only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

__all__ = ["Line", "Repair", "bisect", "encode", "first_index", "repair", "scan"]

_SEPARATORS = (
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
    (b"\xc2\x85", b"\\u0085"),
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_DEPTH = 200
_LARGEST = 2**1023
_OPTIONS = orjson.OPT_NON_STR_KEYS


def encode(event: dict[str, Any]) -> bytes:
    """Return the event as one line with its newline.

    What JSON cannot say is made sayable rather than refused: NaN, infinities and integers beyond a
    double become null, lone surrogates U+FFFD, other objects their ``str``; what is nested deeper
    than readers can go, or holds itself, ``"…"``.
    """
    try:
        line = orjson.dumps(event, default=str, option=_OPTIONS)
    except (TypeError, ValueError, RecursionError):
        line = json.dumps(_plain(event), ensure_ascii=False, separators=(",", ":")).encode()
    for raw, escaped in _SEPARATORS:
        if raw in line:
            line = line.replace(raw, escaped)
    return line + b"\n"


def _plain(value: Any, around: tuple[int, ...] = ()) -> Any:
    match value:
        case str():
            return _SURROGATE.sub("\ufffd", value)
        case bool() | None:
            return value
        case int():
            # Readers take what a double does not hold for an infinity, or give up.
            return int(value) if abs(value) < _LARGEST else None
        case float():
            return float(value) if math.isfinite(value) else None
        case dict() | list() | tuple() | set() | frozenset():
            if len(around) >= _DEPTH or id(value) in around:
                return "…"
            around = (*around, id(value))
            if isinstance(value, dict):
                return {_name(key): _plain(item, around) for key, item in value.items()}
            return [_plain(item, around) for item in value]
        case _:
            return _name(value)


def _name(value: Any) -> str:
    """Return what an object calls itself, or its type when it cannot say."""
    try:
        return _SURROGATE.sub("\ufffd", str(value))
    except Exception:
        return f"<{type(value).__name__}>"


@dataclass(frozen=True, slots=True)
class Line:
    """A good line: where it starts, its bytes with the newline, and the event it holds."""

    offset: int
    raw: bytes
    event: dict[str, Any]


def parse(raw: bytes) -> dict[str, Any] | None:
    """Return the event that the bytes hold, or None when they are not an event."""
    try:
        event = orjson.loads(raw)
    except ValueError:
        return None
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        return None
    index = event.get("index")
    return event if isinstance(index, int) and not isinstance(index, bool) else None


def scan(data: bytes, offset: int = 0) -> Iterator[Line | None]:
    """Yield each line of the bytes, and None for each that is damaged; a torn tail is left out."""
    start = 0
    while (end := data.find(b"\n", start)) != -1:
        raw = data[start : end + 1]
        event = parse(raw)
        yield Line(offset + start, raw, event) if event is not None else None
        start = end + 1


def first_index(data: bytes) -> int | None:
    """Return the index of the first good line, or None."""
    for line in scan(data):
        if line is not None:
            return int(line.event["index"])
    return None


def bisect(read: Callable[[int, int], bytes], size: int, index: int, *, window: int = 4096) -> int:
    """Return the offset of the first line whose index is at least ``index``.

    ``read(offset, length)`` returns stored bytes; ``size`` is where whole lines end. Takes about
    log2(size / window) reads; damaged lines are stepped over.
    """
    low, high = 0, size
    while high - low > window:
        middle = (low + high) // 2
        found = _line_from(read, middle, high, window)
        if found is None or found[1] >= index:
            high = middle
        else:
            low = found[0]
    return _first_at_least(read, low, size, index, window)


def _line_from(
    read: Callable[[int, int], bytes], offset: int, end: int, window: int
) -> tuple[int, int] | None:
    """Return offset and index of the first good line that starts behind ``offset``."""
    data = b""
    position = offset
    while position < end or b"\n" not in data:
        chunk = read(position, max(window, len(data)))
        if not chunk:
            return None
        data += chunk
        position += len(chunk)
        skipped = data.find(b"\n") + 1
        if skipped == 0:
            continue
        for line in scan(data[skipped:], offset + skipped):
            if line is not None:
                return line.offset, int(line.event["index"])
    return None


def _first_at_least(
    read: Callable[[int, int], bytes], offset: int, size: int, index: int, window: int
) -> int:
    data = b""
    base = offset
    position = offset
    while position < size:
        chunk = read(position, min(max(window, len(data)), size - position))
        if not chunk:
            break
        data += chunk
        position += len(chunk)
        for line in scan(data, base):
            if line is not None and line.event["index"] >= index:
                return line.offset
        cut = data.rfind(b"\n") + 1
        base += cut
        data = data[cut:]
    return size


@dataclass(frozen=True, slots=True)
class Repair:
    """What :func:`repair` made of a log's bytes."""

    good: bytes
    damaged: list[tuple[int, int]]
    torn: int

    @property
    def clean(self) -> bool:
        """True when the bytes were already a whole log."""
        return not self.damaged and not self.torn


def repair(data: bytes) -> Repair:
    """Return the bytes without what is damaged.

    A last line that is whole but for its newline is kept and gets one; a torn one is cut (``torn``
    counts its bytes). A line in the middle that is no event, or whose index does not rise, is taken
    out and named by its place ``(offset, length)``.
    """
    torn = 0
    tail = data[data.rfind(b"\n") + 1 :]
    if tail:
        if parse(tail) is not None:
            data += b"\n"
        else:
            torn = len(tail)
            data = data[: len(data) - torn]
    good: list[bytes] = []
    damaged: list[tuple[int, int]] = []
    last = -1
    offset = 0
    for raw in data.split(b"\n")[:-1]:
        length = len(raw) + 1
        event = parse(raw)
        if event is None or event["index"] <= last:
            damaged.append((offset, length))
        else:
            last = event["index"]
            good.append(raw + b"\n")
        offset += length
    return Repair(b"".join(good), damaged, torn)
