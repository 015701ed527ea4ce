"""The terminal of a chat: where lines come from, and where pieces of text go.

On a terminal with prompt_toolkit a prompt stays below what streams in; everywhere else, in pipes
for one, text is written as it comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import threading
from typing import TYPE_CHECKING, Protocol, TextIO

from threadline.cli import output
from threadline.cli.render import Piece

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prompt_toolkit import PromptSession

__all__ = ["Lines", "PlainTerminal", "Terminal", "open_terminal"]

PROMPT = "> "


class Terminal(Protocol):
    """What a conversation needs; ``interactive`` says that a person types."""

    interactive: bool

    async def read(self) -> str | None:
        """Return the next line without its end; None when there is no more.

        Raises KeyboardInterrupt for Ctrl-C.
        """

    def show(self, piece: Piece) -> None:
        """Show a piece of text."""


@contextlib.contextmanager
def open_terminal() -> Iterator[Terminal]:
    """Yield the best terminal that there is."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        try:
            from prompt_toolkit.patch_stdout import patch_stdout
        except ImportError:
            output.note("Install 'threadline[chat]' to type undisturbed while the agent writes.")
        else:
            with patch_stdout(raw=True):
                yield PromptTerminal()
            return
    yield PlainTerminal(sys.stdout)


class Lines:
    """Cuts bytes into lines; what follows the last newline counts when the input ends."""

    def __init__(self) -> None:
        self._torn = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that the bytes complete; no bytes are the end."""
        *whole, self._torn = (self._torn + data).split(b"\n")
        if not data and self._torn:
            whole.append(self._torn)
            self._torn = b""
        return [line.decode("utf-8", "replace").removesuffix("\r") for line in whole]


class PlainTerminal:
    """Reads lines, and writes text as it comes."""

    def __init__(self, stream: TextIO, handle: int = 0) -> None:
        self.interactive = os.isatty(handle)
        self._stream = stream
        self._handle = handle
        self._at_start = True
        self._lines: asyncio.Queue[str | None] | None = None

    async def read(self) -> str | None:
        """Return the next line."""
        if self._lines is None:
            self._lines = asyncio.Queue()
            loop = asyncio.get_running_loop()
            # A thread, since files cannot be polled; a daemon, since its read cannot be cancelled;
            # and on the handle, since a lock of sys.stdin's would stop the interpreter's end.
            threading.Thread(target=self._pump, args=(loop, self._lines), daemon=True).start()
        line = await self._lines.get()
        if line is not None and not self.interactive:
            self.show(Piece(PROMPT + line, "bold", line=True))
        return line

    def _pump(self, loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[str | None]) -> None:
        lines = Lines()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            while True:
                try:
                    data = os.read(self._handle, 65536)
                except OSError:
                    data = b""
                for line in lines.feed(data):
                    loop.call_soon_threadsafe(queue.put_nowait, line)
                if not data:
                    loop.call_soon_threadsafe(queue.put_nowait, None)
                    return

    def show(self, piece: Piece) -> None:
        """Write a piece at once."""
        text = output.paint(piece.text, piece.style, self._stream)
        if piece.line:
            start = "" if self._at_start else "\n"
            self._stream.write(start + (text + "\n" if piece.text else ""))
            self._at_start = True
        elif piece.text:
            self._stream.write(text)
            self._at_start = piece.text.endswith("\n")
        self._stream.flush()


class PromptTerminal:
    """Keeps a prompt at the bottom; whole lines go above it, the one that streams stands on it."""

    interactive = True

    def __init__(self) -> None:
        from prompt_toolkit import PromptSession

        self._session: PromptSession[str] = PromptSession(self._message, erase_when_done=True)
        self._line = ""
        self._style = ""

    def _message(self) -> str:
        shown = self._line[-(self._width() - 1) :]
        return f"{shown}\n{PROMPT}" if shown else PROMPT

    @staticmethod
    def _width() -> int:
        return max(20, shutil.get_terminal_size().columns - 1)

    async def read(self) -> str | None:
        """Return the next line that was typed."""
        try:
            line = await self._session.prompt_async()
        except EOFError:
            return None
        self.show(Piece(PROMPT + line, "bold", line=True))
        return line

    def show(self, piece: Piece) -> None:
        """Take a piece; lines that are whole, or as wide as the terminal, go above the prompt."""
        if piece.line:
            self._end()
            if piece.text:
                self._write(piece.text, piece.style)
        elif piece.text:
            if piece.style != self._style:
                self._end()
            self._style = piece.style
            self._append(piece.text)
        self._session.app.invalidate()

    def _append(self, text: str) -> None:
        *whole, self._line = (self._line + text).split("\n")
        for line in whole:
            self._write(line, self._style)
        width = self._width()
        while len(self._line) > width:
            cut = self._line.rfind(" ", 1, width) + 1 or width
            self._write(self._line[:cut].rstrip(), self._style)
            self._line = self._line[cut:]

    def _end(self) -> None:
        if self._line:
            self._write(self._line, self._style)
        self._line, self._style = "", ""

    def _write(self, text: str, style: str) -> None:
        colour = style and not os.environ.get("NO_COLOR")
        sys.stdout.write((output.styled(text, style) if colour and text else text) + "\n")
        sys.stdout.flush()
