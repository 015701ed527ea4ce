"""What tools print goes to their logs, not to the host's standard output.

That may be a pipe which nobody reads. A call that writes to it would hold the stream's lock for
ever, and whoever prints next would wait for that, be it the event loop.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterable
from typing import Any, TextIO

from threadline.agent.started import Started, current

__all__ = ["close_prints", "keep_prints", "let_prints_go", "show_prints"]

MOST = 64 * 1024

_lock = threading.Lock()
_keepers = 0
_shown = False
_printed: weakref.WeakKeyDictionary[Started, _Printed] = weakref.WeakKeyDictionary()


def show_prints() -> None:
    """Leave what calls print where they print it: for a command that somebody watches."""
    global _shown
    _shown = True


def keep_prints() -> None:
    """Take what calls print; on a terminal it is shown as it is. Each needs a let_prints_go()."""
    global _keepers
    with _lock:
        _keepers += 1
        if not _shown:
            sys.stdout, sys.stderr = _taken(sys.stdout), _taken(sys.stderr)


def let_prints_go() -> None:
    """Give the standard streams back when no call runs any more."""
    global _keepers
    with _lock:
        _keepers -= 1
        if not _keepers:
            sys.stdout, sys.stderr = _given_back(sys.stdout), _given_back(sys.stderr)


def close_prints(started: Started) -> None:
    """Log what a call has printed without ending the line, and how much was too much."""
    printed = _printed.pop(started, None)
    if printed is not None:
        printed.close()


class _Printed:
    """What one call prints: its first 64 KiB are logged, line by line."""

    def __init__(self, started: Started) -> None:
        self._log = started.log
        self._line = ""
        self._left = MOST
        self._dropped = 0

    def add(self, text: str) -> None:
        kept, self._dropped = text[: self._left], self._dropped + max(0, len(text) - self._left)
        self._left -= len(kept)
        *lines, self._line = (self._line + kept).split("\n")
        for line in lines:
            self._say(line)

    def close(self) -> None:
        self._say(self._line)
        if self._dropped and self._log is not None:
            self._log.warning("tool_prints_dropped", characters=self._dropped)

    def _say(self, line: str) -> None:
        if line.strip() and self._log is not None:
            self._log.info("tool_printed", text=line)


class _Stream:
    """A standard stream without what calls print."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write the text, or keep it for the log of the call that prints it."""
        started = current(over=True)
        if started is None:
            return self.stream.write(text)
        terminal = _terminal(self.stream)
        if terminal is not None:
            return terminal.write(text)
        with _lock:
            if started not in _printed:
                _printed[started] = _Printed(started)
        _printed[started].add(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush the stream; what calls print needs none."""
        if current(over=True) is None:
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _terminal(stream: TextIO) -> TextIO | None:
    """Return where a developer sees it: the stream, or standard error behind a redirected one."""
    for place in (stream, sys.__stderr__):
        if place is not None and not place.closed and place.isatty():
            return place
    return None


def _taken(stream: Any) -> Any:
    return stream if stream is None or isinstance(stream, _Stream) else _Stream(stream)


def _given_back(stream: Any) -> Any:
    return stream.stream if isinstance(stream, _Stream) else stream
