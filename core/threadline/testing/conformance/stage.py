"""What a check stands on: one host with the channel, and a harness in the check's hands."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from threadline.agent.config import Agent
from threadline.channel.auth import bearer, local_dev_strict
from threadline.principal import Principal
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.kit import ChannelKit, Posted
from threadline.testing.harness import Gated
from threadline.testing.host import TestHost
from threadline.testing.inbound import Answer, Inbound

if TYPE_CHECKING:
    from threadline.channel.channel import Channel
    from threadline.harness.base import Turn
    from threadline.store.base import AcceptResult, Admission
    from threadline.testing.session import HostSession

__all__ = [
    "STRANGER",
    "Check",
    "Names",
    "NotApplicable",
    "Stage",
    "Told",
    "check",
    "expect",
    "needs",
]

STRANGER = {
    "authorization": "Bearer threadline-conformance-stranger",
    "x-forwarded-for": "203.0.113.9",
}
_STRANGER = bearer(
    token="threadline-conformance-stranger", principal=Principal("person", "stranger")
)
_PING = re.compile(r"\bping(\d+)\b")


class NotApplicable(Exception):
    """The check says nothing about this channel; the message says what it would need."""


def expect(holds: object, otherwise: str) -> None:
    """Raise AssertionError with a sentence for the channel's author unless something holds."""
    if not holds:
        raise AssertionError(otherwise)


@dataclass(frozen=True, slots=True)
class Check:
    """One promise and its proof; ``hooks`` are the kit's methods that it needs."""

    id: str
    title: str
    run: Callable[[Stage], Awaitable[None]]
    hooks: Sequence[str] = ()


def check(
    check_id: str, title: str, *, hooks: Sequence[str] = ()
) -> Callable[[Callable[[Stage], Awaitable[None]]], Check]:
    """Make a check of an async function of the stage."""
    return lambda run: Check(check_id, title, run, hooks)


_HINTS = {
    "fail_next": "fail_next(status, retry_after), to refuse a post",
    "forged": "forged(inbound), the same request with a wrong credential",
    "other": "other(conversation, text, delivery_id), a message of another person",
    "posted": "posted(), what is visible at the outside target",
}


def needs(kit: ChannelKit, one: Check) -> None:
    """Raise NotApplicable when the kit lacks a method."""
    missing = [_HINTS[hook] for hook in one.hooks if not kit.gives(hook)]
    if missing:
        raise NotApplicable(f"give {' and '.join(missing)}")


@dataclass(slots=True)
class Names:
    """Names that are new in a whole run, so that a kit's outside world needs no cleaning."""

    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def conversation(self) -> str:
        """Return a new conversation's name."""
        return f"c{next(self._numbers)}"

    def delivery(self) -> str:
        """Return a new delivery's id."""
        return f"d{next(self._numbers)}"

    def ping(self) -> str:
        """Return a new text; its answer holds ``pong`` with the same number."""
        return f"ping{next(self._numbers)}"


@dataclass(frozen=True, slots=True)
class Told:
    """A message that was sent: the request, its answer, and what the store accepted for it."""

    conversation: str
    text: str
    inbound: Inbound
    answer: Answer
    accepted: AcceptResult

    @property
    def session_id(self) -> str:
        """The session that it reached."""
        return self.accepted.session.id

    @property
    def delivery_id(self) -> str:
        """Its id as the channel gave it to the core."""
        return self.accepted.delivery.delivery_id

    @property
    def pong(self) -> str:
        """What its answer holds."""
        return self.text.replace("ping", "pong")


def pongs(turn: Turn, nudges: Sequence[str]) -> str:
    """Answer each ``ping`` of the prompt and of what was steered with its ``pong``."""
    numbers = _PING.findall("\n".join([turn.prompt.text, *nudges]))
    return " ".join(f"pong{number}" for number in numbers) or "pong"


class Stage:
    """A host with the kit's channel, started afresh for one check."""

    def __init__(self, kit: ChannelKit, names: Names, root: Path, patience: float) -> None:
        self.kit = kit
        self.names = names
        self.clock = kit.clock = ManualClock()
        self.harness = Gated(reply=pongs)
        self.host = TestHost(
            self._agent,
            root=root,
            clock=self.clock,
            channel_id=kit.channel_id,
            playground=False,
            docs=False,
        )
        self.host.patience = patience

    def _agent(self) -> Agent:
        """Make the agent as a new process would; its HTTP chain admits a stranger."""
        channel = self.kit.channel()
        if self.kit.channel_id == "http":
            channel.auth = [_STRANGER, *channel.auth]
        return Agent(
            name="Conformance",
            instructions="Answer.",
            harness=self.harness,
            auth=[_STRANGER, local_dev_strict()],
            channels={self.kit.channel_id: channel},
            drain_seconds=0.0,
        )

    @property
    def channel(self) -> Channel:
        """The mounted channel."""
        return self.host.channel()

    @property
    def admission(self) -> Admission:
        """What an ordinary message should do to a busy session."""
        return self.kit.admission or self.channel.admission

    @property
    def fresh(self) -> list[AcceptResult]:
        """What was accepted so far, without duplicates."""
        return self.host.witness.fresh

    def session(self, told: Told) -> HostSession:
        """Return the session that a message reached."""
        return self.host.session(told.session_id)

    # Talking

    async def send(self, inbound: Inbound, *, may_fail: bool = False) -> Answer:
        """Send a request as it is; a 5xx fails the check unless it ``may_fail``."""
        answer = await self.host.request(
            inbound.method,
            self.channel.prefix + inbound.path,
            body=inbound.body,
            headers=inbound.headers,
        )
        answer = self.kit.read(answer)
        expect(
            may_fail or answer.status < 500,
            f"{inbound.method} {inbound.path} got {answer.status}: {answer.text[:200]}",
        )
        return answer

    async def tell(
        self,
        conversation: str,
        text: str | None = None,
        *,
        inbound: Inbound | None = None,
    ) -> Told:
        """Send a message that must be accepted; return what came of it."""
        text = text or self.names.ping()
        inbound = inbound or self.kit.inbound(conversation, text, self.names.delivery())
        before = len(self.host.witness.accepted)
        answer = await self.send(inbound)
        accepted = self.host.witness.accepted[before:]
        expect(
            answer.ok,
            f"An ordinary message was refused with {answer.status}: {answer.text}. Is the kit's "
            "inbound() what the service sends?",
        )
        expect(
            accepted,
            f"A message was answered with {answer.status} before it was stored. Await ctx.send() "
            "before the route returns; what is only deferred dies with the process.",
        )
        self.kit.answered(conversation, answer)
        return Told(conversation, text, inbound, answer, accepted[0])

    async def tell_at_once(self, inbounds: Sequence[Inbound]) -> list[AcceptResult]:
        """Send requests side by side; return what was accepted anew."""
        before = len(self.fresh)
        answers = await asyncio.gather(*(self.send(inbound) for inbound in inbounds))
        for answer in answers:
            expect(answer.ok, f"One of several at once got {answer.status}: {answer.text}")
        return self.fresh[before:]

    # Looking

    async def rest(self) -> None:
        """Open every gate and wait until everything rests."""
        self.harness.release()
        await self.host.rest()

    async def posts(self, conversation: str) -> list[str]:
        """Return what is visible in a conversation."""
        return [post.text for post in await self._posted() if post.conversation == conversation]

    async def _posted(self) -> Sequence[Posted]:
        return await self.kit.posted()

    async def shown(self, told: Told) -> int:
        """Return how many visible posts hold a message's answer."""
        return sum(_holds(text, told.pong) for text in await self.posts(told.conversation))

    async def reply(self, told: Told, why: str = "") -> None:
        """Wait until a message's answer is visible."""
        try:
            await self.host.until(lambda: self.shown(told))
        except AssertionError:
            raise AssertionError(f"An answer never became visible. {why}".strip()) from None

    async def reply_in_time(self, told: Told, seconds: float, why: str) -> None:
        """Let so much of the clock's time pass, at most, until a message's answer is visible."""
        for _ in range(int(seconds)):
            if await self.shown(told):
                return
            await self.host.elapse(1.0)
        await self.reply(told, why)

    async def once(self, told: Told, why: str) -> None:
        """Fail unless a message's answer is visible once, also when some time has passed."""
        await self.rest()
        await self.host.elapse(10.0)
        shown = await self.shown(told)
        expect(shown == 1, f"The answer is visible {shown} times. {why}")


def _holds(text: str, pong: str) -> bool:
    return re.search(rf"\b{pong}\b", text) is not None
