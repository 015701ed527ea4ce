"""The Slack channel: mentions, direct messages and threads, over HTTP or Socket Mode.

Nothing is asked of Slack before a message is durable. Names, history and files are fetched by
``prepare``; answers, notes and approval cards are posted by the handlers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal

from threadline import Channel, Context, Prepared, Principal, Reply, RouteContext
from threadline.channel.auth import AuthRequest, Policy, documented
from threadline.channel.tokens import matching
from threadline.errors import InvalidRequest, Unauthorized
from threadline.store.base import DeliveryRecord
from threadline_slack import forms
from threadline_slack.approvals import Approvals
from threadline_slack.bots import Bots
from threadline_slack.config import Config
from threadline_slack.gather import Limits
from threadline_slack.inbound import TOKEN, Place, Rules
from threadline_slack.receive import Click, Receiver
from threadline_slack.replies import Replies

if TYPE_CHECKING:
    from slack_sdk.signature import SignatureVerifier
    from slack_sdk.socket_mode.aiohttp import SocketModeClient

__all__ = ["SlackChannel"]

_HELLO_SECONDS = 10.0


class SlackChannel(Channel):
    """Conversations in Slack; ``SlackChannel()`` in ``agent/channels/slack.py`` is all there is.

    The tokens come from the environment, see :class:`~threadline_slack.config.Config`; ``prefix``
    is that of a second bot's variables, as ``TRIAGE_``. ``follow_ups``, ``flat_dms``, ``external``,
    ``bots``, ``bot_turns``, ``allowed`` and ``blocked`` are
    :class:`~threadline_slack.inbound.Rules`. ``mentions`` are the user ids that an answer may
    notify. ``limits`` says what a message may bring along.
    """

    def __init__(
        self,
        *,
        prefix: str = "",
        follow_ups: bool = True,
        flat_dms: bool = False,
        external: bool = False,
        bots: bool = False,
        bot_turns: int = 5,
        allowed: Collection[str] | None = None,
        blocked: Collection[str] = (),
        mentions: Collection[str] = (),
        reply: Literal["post"] = "post",
        limits: Limits | None = None,
        config: Config | None = None,
    ) -> None:
        if reply != "post":
            raise ValueError(f"reply must be 'post', not {reply!r}.")
        super().__init__(
            auth=[self._policy()],
            admission="coalesce",
            owner="channel",
            tokens=matching(TOKEN, example="slack:T0123:C0123:1700000000.000100"),
        )
        self.rules = Rules(
            follow_ups=follow_ups,
            flat_dms=flat_dms,
            external=external,
            bots=bots,
            bot_turns=bot_turns,
            allowed=None if allowed is None else frozenset(allowed),
            blocked=frozenset(blocked),
        )
        self._prefix = prefix
        self._config = config
        self._bots = Bots(limits)
        self._verifier: SignatureVerifier | None = None
        self._socket: SocketModeClient | None = None
        self._connecting: asyncio.Future[Any] | None = None
        approvals = Approvals(self, self._bots, self.rules)
        clicks: dict[str, Click] = dict.fromkeys(approvals.actions, approvals.clicked)
        self._receiver = Receiver(self._bots, self.rules, clicks)
        Replies(self, self._bots, mentions)
        self.post(
            "/events",
            description="Slack's events, clicks and commands, signed.",
            raises=(InvalidRequest,),
        )(self.receive)

    # Life

    async def on_start(self, ctx: Context) -> None:
        """Read the tokens, and connect; raises ProjectError when they cannot be used."""
        config = self._config or Config.read(os.environ, self._prefix)
        from slack_sdk.signature import Clock, SignatureVerifier

        clock = ctx.clock

        class HostClock(Clock):
            def now(self) -> float:
                return clock.now().timestamp()

        self._receiver.open(clock.now().timestamp())
        if config.signing_secret is not None:
            self._verifier = SignatureVerifier(config.signing_secret, HostClock())
        await self._bots.open(ctx, config)
        if config.app_token is not None:
            await self._listen(ctx, config.app_token, config.api_url)

    async def _listen(self, ctx: Context, app_token: str, api_url: str) -> None:
        """Open the socket; while Slack is away the host starts all the same, and it goes on."""
        from threadline_slack import socket

        async def take(payload: Mapping[str, Any]) -> Any:
            return await self._receiver.take(ctx, payload)

        self._socket = socket.client(app_token, api_url, take)
        self._connecting = asyncio.ensure_future(self._socket.connect())  # type: ignore[no-untyped-call]
        await asyncio.wait([self._connecting], timeout=_HELLO_SECONDS)
        if not self._connecting.done():
            ctx.log.error("slack.no_socket_yet", hint="Check the app token, and the network.")

    async def on_stop(self, ctx: Context) -> None:
        """Close the connections."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._socket is not None:
            from threadline_slack.socket import close

            await close(self._socket)
        await self._bots.close()
        self._socket = self._connecting = None

    # In

    def _policy(self) -> Policy:
        """Admit what Slack signed, over the very bytes that came; what cannot be checked fails."""

        @documented({"type": "apiKey", "in": "header", "name": "X-Slack-Signature"})
        def signed(request: AuthRequest) -> Principal:
            if not self._is_signed(request):
                raise Unauthorized("The request is not signed with this app's signing secret.")
            return Principal("slack-app", self.id)

        return signed

    def _is_signed(self, request: AuthRequest) -> bool:
        try:
            return self._verifier is not None and self._verifier.is_valid_request(
                request.body, dict(request.headers)
            )
        except (TypeError, ValueError):
            return False

    async def receive(self, ctx: RouteContext) -> Reply:
        """Take one request of Slack; 200 when it is durable, or when it is nothing for us."""
        payload = forms.parse(ctx.headers.get("content-type", ""), ctx.body)
        answer = await self._receiver.take(ctx, payload)
        return Reply(answer)

    # Before a turn

    async def prepare(self, ctx: Context, delivery: DeliveryRecord) -> Prepared | None:
        """Fetch names, files, and what was said since the agent's last answer."""
        if "token" not in delivery.metadata:
            return None
        session = ctx.session(delivery.session_id)
        new = session is None or await session.next_index() <= 1
        earlier = new or not self.rules.follow_ups
        bot = await self._bots.of(Place.of(str(delivery.metadata["token"])).team)
        return await bot.gatherer.gather(delivery.metadata, bot.me, earlier=earlier)
