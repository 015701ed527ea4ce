"""A conversation over HTTP: what is typed goes out in order, what happens comes in as it does."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from threadline.cli.render import Piece, Renderer
from threadline.errors import ThreadlineError
from threadline.ids import new_id

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from threadline.cli.client import Client, Sent
    from threadline.cli.terminal import Terminal

__all__ = ["Conversation"]

HELP = """\
TEXT     say it; while the agent works, it is added to the running turn
!TEXT    say it, and interrupt what runs
/approve let the tool call run that waits longest; a REASON may follow
/deny    do not let it run; a REASON may follow
/stop    stop what runs
/new     begin a new conversation
/quit    leave
/help    show this"""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message on its way out, under one delivery id however often it is sent."""

    text: str
    delivery_id: str
    interrupts: bool


class Conversation:
    """Joins a client and a terminal; ``seconds`` bounds the wait after the input ends."""

    def __init__(self, client: Client, terminal: Terminal, *, seconds: float = 900.0) -> None:
        self.client = client
        self.terminal = terminal
        self.seconds = seconds
        self.renderer = Renderer()
        self.session: str | None = None
        self.token: str | None = None
        self._outbox: asyncio.Queue[Outgoing] = asyncio.Queue()
        self._changed = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None
        self._main: asyncio.Task[Any] | None = None
        self._crash: BaseException | None = None

    async def begin(
        self, message: str | None = None, session: str | None = None, token: str | None = None
    ) -> None:
        """Take up a session where its log ends, and say the first message."""
        if session is not None:
            start = await self.client.next_index(session)
            self.session, self.token = session, token
            self._follow(start)
        if self.terminal.interactive:
            self._note(f"Talking to {self.client.url}; /help lists the commands.")
        if message is not None:
            self.say(message)

    async def run(self) -> int:
        """Read, send and show until the input ends; return 1 when a turn failed meanwhile."""
        self._main = asyncio.current_task()
        sender = self._spawn(self._send_all(), "chat sender")
        try:
            if await self._read():
                await self._settle()
        except asyncio.CancelledError:
            if self._crash is not None:
                raise self._crash from None
            raise
        finally:
            await _cancel(sender)
            await self._leave()
        self._farewell()
        return int(self.renderer.failed and not self.terminal.interactive)

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A fault in a task ends the conversation, which would wait for it forever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._crash = error
            if self._main is not None:
                self._main.cancel()

    # What is typed

    async def _read(self) -> bool:
        """Read until the end; return True when what was said still waits for its answer."""
        while True:
            try:
                line = await self.terminal.read()
            except KeyboardInterrupt:
                if not self.renderer.busy:
                    raise
                await self._stop()
                continue
            if line is None:
                return not self.terminal.interactive
            if line.strip() == "/quit":
                return False
            await self._typed(line.strip())

    async def _typed(self, line: str) -> None:
        if not line:
            return
        if not line.startswith("/"):
            self.say(line)
            return
        command, _, rest = line.partition(" ")
        if command in ("/approve", "/deny"):
            await self._decide("approved" if command == "/approve" else "denied", rest.strip())
            return
        match line:
            case "/stop":
                await self._stop()
            case "/new":
                await self._new()
            case "/help":
                self.terminal.show(Piece(HELP, line=True))
            case _:
                self._error(f"there is no command {line.split()[0]}; /help lists them")

    def say(self, text: str) -> None:
        """Send a message after those before it; ``!`` in front interrupts what runs."""
        interrupts = text.startswith("!") and bool(text[1:].strip())
        message = Outgoing(text[1:].strip() if interrupts else text, new_id("dlv"), interrupts)
        # At once, so that a message that is still on its way counts as unanswered.
        self.renderer.sending(message.delivery_id, message.text, interrupts=interrupts)
        self._outbox.put_nowait(message)

    async def _stop(self) -> None:
        if self.session is None:
            self._note("nothing runs")
            return
        try:
            if not await self.client.stop(self.session):
                self._note("nothing runs")
        except ThreadlineError as error:
            self._error(error.message)

    async def _decide(self, decision: Literal["approved", "denied"], reason: str) -> None:
        call_id = next(iter(self.renderer.parked), None)
        if self.session is None or call_id is None:
            self._note("nothing waits for an approval")
            return
        try:
            await self.client.decide(self.session, call_id, decision, reason or None)
        except ThreadlineError as error:
            self._error(error.message)

    async def _new(self) -> None:
        while not self._outbox.empty():
            self._outbox.get_nowait()
        await self._leave()
        self._farewell()
        self.session = self.token = None
        self.renderer = Renderer()
        self._note("a new conversation")

    # What goes out

    async def _send_all(self) -> None:
        while True:
            message = await self._outbox.get()
            renderer = self.renderer
            try:
                sent = await self._send(message)
            except ThreadlineError as error:
                renderer.refused(message.delivery_id)
                renderer.failed = True
                self._error(f"not sent: {error.message}")
            else:
                if renderer is self.renderer:
                    self._sent(message, sent)
            self._changed.set()

    async def _send(self, message: Outgoing) -> Sent:
        if self.session is None or self.token is None:
            return await self.client.start(message.text, delivery_id=message.delivery_id)
        return await self.client.follow_up(
            self.session,
            self.token,
            message.text,
            admission="preempt" if message.interrupts else "coalesce",
            delivery_id=message.delivery_id,
        )

    def _sent(self, message: Outgoing, sent: Sent) -> None:
        self.token = sent.token
        if self.session is None:
            self.session = sent.session_id
            self._follow(0)
        elif sent.admitted == "queued" and message.delivery_id in self.renderer.mine:
            self._note("sent; the agent sees it at its next tool call, or answers it next")

    # What comes in

    def _follow(self, start: int) -> None:
        self._follower = self._spawn(self._show_all(start), "chat follower")

    async def _show_all(self, start: int) -> None:
        assert self.session is not None
        lines = self.client.stream(
            self.session,
            start,
            on_break=lambda: self._note("connection lost; trying again"),
            on_return=lambda: self._note("connected again"),
        )
        try:
            async with contextlib.aclosing(lines):
                async for line in lines:
                    for piece in self.renderer.show(line.event):
                        self.terminal.show(piece)
                    self._changed.set()
        except ThreadlineError as error:
            self.renderer.failed = True
            self.renderer.mine.clear()
            self._error(error.message)
        finally:
            self._changed.set()

    async def _settle(self) -> None:
        """The input ended: wait until everything that was said has its answer."""
        try:
            async with asyncio.timeout(self.seconds):
                while self.renderer.unsettled:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            self.renderer.failed = True
            self._error(f"no answer within {self.seconds:g} s; the agent may still be at work")

    async def _leave(self) -> None:
        if self._follower is not None:
            await _cancel(self._follower)
            self._follower = None

    def _farewell(self) -> None:
        if self.session is not None and self.terminal.interactive:
            self._note(f"to go on later: --session {self.session} --token {self.token}")

    def _note(self, text: str) -> None:
        self.terminal.show(Piece(f"[{text}]", "yellow", line=True))

    def _error(self, text: str) -> None:
        self.terminal.show(Piece(text, "red", line=True))


async def _cancel(task: asyncio.Task[None]) -> None:
    """End a task; what went wrong in it was told already."""
    task.cancel()
    await asyncio.wait([task])
