"""What an author gives the conformance suite: a channel, and how the outside speaks to it."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from threadline.testing.clock import ManualClock
from threadline.testing.inbound import Inbound

if TYPE_CHECKING:
    from threadline.channel.channel import Channel
    from threadline.store.base import Admission
    from threadline.testing.inbound import Answer

__all__ = ["ChannelKit", "Posted"]


@dataclass(frozen=True, slots=True)
class Posted:
    """One message that is visible at the outside target, in the conversation of the kit's name."""

    conversation: str
    text: str


class ChannelKit(abc.ABC):
    """Subclass it: ``channel`` and ``inbound`` are needed, each other method opens more checks.

    Conversations are named ``c1``, ``c2`` … and deliveries ``d1``, ``d2`` …; map them to what the
    channel knows, such as thread timestamps. ``clock`` is the host's, for timestamps that are
    signed.

    ``channel_id``: under which id the channel is mounted. ``admission``: what an ordinary message
    does to a busy session, where the channel's routes do otherwise than ``channel.admission`` says.
    ``public``: anybody may send, on purpose. ``shared``: whoever the agent's HTTP chain admits may
    read the channel's conversations, on purpose. ``signed``: the credential is a signature of the
    body. ``finds``: the target can be asked whether it has a post already. ``live_mentions``: texts
    that would notify people at the target, as ``<!channel>``; no answer may hold one.
    """

    channel_id: str = "subject"
    admission: Admission | None = None
    public: bool = False
    shared: bool = False
    signed: bool = False
    finds: bool = True
    live_mentions: Sequence[str] = ()
    clock: ManualClock = ManualClock()

    @abc.abstractmethod
    def channel(self) -> Channel:
        """Return a fresh channel, as a new process would make it."""

    @abc.abstractmethod
    def inbound(self, conversation: str, text: str, delivery_id: str) -> Inbound:
        """Return the request by which the service delivers a person's message."""

    def read(self, answer: Answer) -> Answer:
        """Return an answer with the status that HTTP would give it.

        Override it where the protocol says in the body of a 200 that a message was refused.
        """
        return answer

    def answered(self, conversation: str, answer: Answer) -> None:
        """Hear how an accepted message was answered; for tokens that rotate."""
        return

    def carried(self, text: str) -> str:
        """Return what of a text must reach the model; override it where markup is translated."""
        return text

    def bare(self, inbound: Inbound) -> Inbound | None:
        """Return the request without any credential; None when that is no request at all.

        By default every header but the content type is left out, and the caller is not local.
        """
        kept = {k: v for k, v in inbound.headers.items() if k.lower() == "content-type"}
        return replace(inbound, headers={**kept, "x-forwarded-for": "203.0.113.9"})

    def raw(self, body: bytes) -> Inbound:
        """Return a request with any bytes as its body, signed if the channel wants that."""
        return replace(self.inbound("c0", "raw", "d0"), body=body)

    # Optional

    def forged(self, inbound: Inbound) -> Inbound | None:
        """Return the request with a wrong credential."""
        raise NotImplementedError

    def other(self, conversation: str, text: str, delivery_id: str) -> Inbound:
        """Return a message of another person whom the channel admits."""
        raise NotImplementedError

    async def posted(self) -> Sequence[Posted]:
        """Return what is visible at the outside target now, in its order."""
        raise NotImplementedError

    def fail_next(self, status: int, retry_after: float | None) -> None:
        """Let the target answer the next post with this status, and this ``Retry-After``."""
        raise NotImplementedError

    async def open(self) -> None:
        """Start what the kit needs, such as a fake of the outside service."""
        return

    async def close(self) -> None:
        """Stop it."""
        return

    def gives(self, hook: str) -> bool:
        """Tell whether the subclass has an optional method."""
        return getattr(type(self), hook) is not getattr(ChannelKit, hook)
