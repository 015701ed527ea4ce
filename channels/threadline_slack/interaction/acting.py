"""What a handler of an interaction may do, in the name of the person who did it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from threadline import Context, Delivery, Post, Principal, Session, TryAgain
from threadline.channel.target import understood
from threadline.errors import InvalidRequest
from threadline_slack.bots import Bot
from threadline_slack.inbound.decide import Ask, Place
from threadline_slack.inbound.gather import metadata
from threadline_slack.interaction.forms import Interaction
from threadline_slack.outbound.thread import content
from threadline_slack.people import principal, respond, tell
from threadline_slack.words.tokens import escape

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

__all__ = ["InteractionContext"]

_GIVE_UP_SECONDS = 900.0
_LONGEST_WAIT = 60.0
_SHOWN = 2_800


class InteractionContext:
    """A person's deed at work; ``base`` is the channel's own context, for everything else.

    ``again`` tells that a crash cut the handler short before; what it had sent by then is known by
    its delivery id, and adds nothing.
    """

    def __init__(
        self, base: Context, bot: Bot, interaction: Interaction, *, again: bool = False
    ) -> None:
        self.base = base
        self.interaction = interaction
        self.again = again
        self._bot = bot
        self._sent = 0

    @property
    def client(self) -> AsyncWebClient:
        """The bot's client."""
        return self._bot.client

    @property
    def principal(self) -> Principal:
        """The person, as the core knows them."""
        return principal(self.interaction.person, self.interaction.user_name)

    @property
    def session(self) -> Session | None:
        """The session of the conversation, if there is one."""
        token = self.interaction.token
        return self.base.session(token) if token is not None else None

    async def send(
        self,
        message: str,
        *,
        continuation_token: str | None = None,
        delivery_id: str | None = None,
        **options: Any,
    ) -> Delivery:
        """Ask the agent, as the person; in the interaction's conversation unless another is given.

        The delivery is named by the interaction and its place in the handler, so that a handler
        that runs again adds nothing. Raises what :meth:`threadline.Context.send` raises, and
        InvalidRequest where there is no conversation.
        """
        token = continuation_token or self.interaction.token
        if token is None:
            raise InvalidRequest(
                "This interaction has no conversation: give continuation_token=, or use ask()."
            )
        place = Place.of(token)
        known = metadata(Ask(place, self._ts(place), self.interaction.person, message))
        return await self.base.send(
            message,
            continuation_token=token,
            delivery_id=delivery_id or self._delivery_id(),
            principal=self.principal,
            metadata={**known, **(options.pop("metadata", None) or {})},
            **options,
        )

    async def ask(self, message: str, *, channel: str | None = None) -> Delivery:
        """Show in a channel who asks what, and ask it in the thread of that message.

        The message is there once, also when the handler runs again. Raises InvalidRequest where no
        channel is known, and what the client raises when Slack refuses the message.
        """
        where = channel or self.interaction.channel
        if not where:
            raise InvalidRequest("This interaction has no channel: give channel=.")
        if not message.strip():
            raise InvalidRequest("message must not be empty or blank.")
        delivery_id = self._delivery_id()
        shown = f"<@{self.interaction.user}> asks:\n{_quoted(message)}"
        blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": shown}}]
        post = Post(f"asked/{delivery_id}", "", None, shown, content(shown, blocks))
        ts = await self._shown(post, Place(self.interaction.team, where, None))
        token = Place(self.interaction.team, where, ts).token
        return await self.send(message, continuation_token=token, delivery_id=delivery_id)

    async def stop(self, *, clear_pending: bool = True) -> bool:
        """Stop what runs in the conversation; False when nothing does."""
        token = self.interaction.token
        return token is not None and await self.base.stop(token, clear_pending=clear_pending)

    async def respond(
        self,
        text: str = "",
        *,
        blocks: Collection[Mapping[str, Any]] | None = None,
        public: bool = False,
        replace: bool = False,
        delete: bool = False,
    ) -> bool:
        """Answer the person; only they see it unless it is ``public``.

        ``replace`` and ``delete`` change the message acted upon. False: Slack took it no more; its
        address is good five times, for half an hour.
        """
        url = self.interaction.response_url
        if not url:
            await tell(self._bot, self.interaction, text)
            return True
        body: dict[str, Any] = {"text": text, "replace_original": replace}
        if delete:
            body = {"delete_original": True}
        elif not replace:
            body["response_type"] = "in_channel" if public else "ephemeral"
        place = self.interaction.place
        if place is not None and place.root != self.interaction.ts and not (replace or delete):
            body["thread_ts"] = place.root
        if blocks is not None:
            body["blocks"] = [dict(block) for block in blocks]
        return await respond(self._bot, url, body)

    async def open_view(self, view: Mapping[str, Any]) -> str:
        """Open a modal, within three seconds of the interaction; returns its id.

        Without a ``private_metadata`` of its own it keeps the conversation's token, so that what is
        submitted belongs there. From within a modal it goes on top of that.
        """
        view = {"private_metadata": self.interaction.token or "", **view}
        trigger = self.interaction.trigger_id
        inside = (self.interaction.raw.get("view") or {}).get("type") == "modal"
        if inside and self.interaction.kind == "action":
            answer = await self.client.views_push(trigger_id=trigger, view=view)
        else:
            answer = await self.client.views_open(trigger_id=trigger, view=view)
        return str((answer.get("view") or {}).get("id") or "")

    # Parts

    def _delivery_id(self) -> str:
        self._sent += 1
        identity = self.interaction.id
        return identity if self._sent == 1 else f"{identity[:190]}/{self._sent}"

    def _ts(self, place: Place) -> str:
        """Return the message that what is asked belongs to."""
        same = place.channel == self.interaction.channel
        return (same and self.interaction.ts) or place.root or self.interaction.action_ts or "0.0"

    async def _shown(self, post: Post, place: Place) -> str:
        """Post a message that may be there already; what Slack cannot take now is tried again."""
        thread, clock = self._bot.thread(place), self.base.clock
        until, wait, maybe_sent = clock.monotonic() + _GIVE_UP_SECONDS, 1.0, self.again
        while True:
            try:
                found = await thread.find(post) if maybe_sent else None
                return found or await thread.send(post)
            except Exception as error:
                told = understood(error)
                if not isinstance(told, TryAgain) or clock.monotonic() >= until:
                    raise
                maybe_sent = maybe_sent or told.sent is not False
            await clock.sleep(max(told.retry_after or 0.0, wait))
            wait = min(wait * 2, _LONGEST_WAIT)


def _quoted(text: str) -> str:
    said = escape(text.strip())
    said = said if len(said) <= _SHOWN else said[:_SHOWN].rpartition(" ")[0] + " …"
    return "\n".join(f">{line}" for line in said.splitlines())
