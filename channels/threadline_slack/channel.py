"""The Slack channel: mentions, direct messages and threads, over HTTP or Socket Mode.

Nothing is asked of Slack before a message is durable. Names, history and files are fetched by
``prepare``; answers, notes and approval cards are posted by the handlers.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal

from threadline import (
    ActionsRequested,
    ApprovalRequested,
    ApprovalResolved,
    Channel,
    Context,
    Event,
    EventContext,
    MessageCompleted,
    Prepared,
    Principal,
    Reply,
    RouteContext,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from threadline.channel.auth import AuthRequest, Policy, documented
from threadline.channel.tokens import matching
from threadline.errors import (
    ApprovalClosed,
    DeliveryConflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    Unauthorized,
)
from threadline.store.base import DeliveryRecord
from threadline_slack import cards, forms
from threadline_slack.compose import compose
from threadline_slack.config import Config
from threadline_slack.gather import Gatherer, Limits, metadata
from threadline_slack.inbound import TOKEN, Ask, Me, Person, Place, Rules, Stop, decide
from threadline_slack.order import Order
from threadline_slack.status import Status
from threadline_slack.thread import Thread, content, error_of

if TYPE_CHECKING:
    import aiohttp
    from slack_sdk.signature import SignatureVerifier
    from slack_sdk.socket_mode.aiohttp import SocketModeClient
    from slack_sdk.web.async_client import AsyncWebClient

__all__ = ["SlackChannel"]

_GOES_ON = frozenset({"preempted", "host_restarted", "host_shutdown"})
_CALL_SECONDS = 30
_HELLO_SECONDS = 10.0
_MANY_BOTS = 10_000
_THINKING = "is thinking…"


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
        self._mentions = frozenset(mentions)
        self._limits = limits
        self._me = Me()
        self._order = Order(0.0)
        self._streaks: OrderedDict[str, int] = OrderedDict()
        self._verifier: SignatureVerifier | None = None
        self._http: aiohttp.ClientSession | None = None
        self._client: AsyncWebClient | None = None
        self._socket: SocketModeClient | None = None
        self._connecting: asyncio.Future[Any] | None = None
        self.post(
            "/events",
            description="Slack's events, clicks and commands, signed.",
            raises=(InvalidRequest,),
        )(self.receive)
        self.on("turn.started")(self._turn_started)
        self.on("actions.requested")(self._using)
        self.on("message.completed")(self._answered)
        self.on("turn.completed")(self._turn_completed)
        self.on("turn.failed")(self._turn_failed)
        self.on("action.approval_requested")(self._approval_asked)
        self.on("action.approval_resolved")(self._approval_decided)

    # Life

    async def on_start(self, ctx: Context) -> None:
        """Read the tokens, and connect; raises ProjectError when they cannot be used."""
        config = self._config or Config.read(os.environ, self._prefix)
        import aiohttp
        from slack_sdk.signature import Clock, SignatureVerifier
        from slack_sdk.web.async_client import AsyncWebClient

        clock = ctx.clock

        class HostClock(Clock):
            def now(self) -> float:
                return clock.now().timestamp()

        self._order = Order(clock.now().timestamp())
        if config.signing_secret is not None:
            self._verifier = SignatureVerifier(config.signing_secret, HostClock())
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_CALL_SECONDS))
        self._client = AsyncWebClient(
            config.bot_token, config.api_url, session=self._http, retry_handlers=[]
        )
        self._status = Status(self._client)
        self._gatherer = Gatherer(self._client, self._http, self._limits)
        await self._hello(ctx, self._client)
        if config.app_token is not None:
            await self._listen(ctx, config.app_token, config.api_url)

    async def _listen(self, ctx: Context, app_token: str, api_url: str) -> None:
        """Open the socket; while Slack is away the host starts all the same, and it goes on."""
        from threadline_slack import socket

        async def take(payload: Mapping[str, Any]) -> Any:
            return await self._take(ctx, payload)

        self._socket = socket.client(app_token, api_url, take)
        self._connecting = asyncio.ensure_future(self._socket.connect())  # type: ignore[no-untyped-call]
        await asyncio.wait([self._connecting], timeout=_HELLO_SECONDS)
        if not self._connecting.done():
            ctx.log.error("slack.no_socket_yet", hint="Check the app token, and the network.")

    async def _hello(self, ctx: Context, client: AsyncWebClient) -> None:
        """Learn the bot's own ids; events name most of them, so that Slack may be away now."""
        try:
            async with asyncio.timeout(_HELLO_SECONDS):
                answer = await client.auth_test()
        except Exception as error:
            said = error_of(error) or repr(error)
            ctx.log.error("slack.unknown_bot", error=said, hint="Check the bot's token.")
            return
        self._me = Me(answer.get("user_id"), answer.get("bot_id"), answer.get("app_id"))

    async def on_stop(self, ctx: Context) -> None:
        """Close the connections."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._socket is not None:
            from threadline_slack.socket import close

            await close(self._socket)
        if self._http is not None:
            await self._http.close()
        self._socket = self._http = self._client = self._connecting = None

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
        answer = await self._take(ctx, payload)
        return Reply(answer)

    async def _take(self, ctx: Context, payload: Mapping[str, Any]) -> Any:
        """Do what a payload asks for, until it is durable; return what to answer."""
        match payload.get("type"):
            case "event_callback":
                await self._event(ctx, payload)
            case "url_verification":
                return {"challenge": str(payload.get("challenge", ""))}
            case "block_actions":
                for click in forms.clicks(payload):
                    await self._clicked(ctx, click)
            case _ if "command" in payload:
                return {
                    "response_type": "ephemeral",
                    "text": "Mention me in a channel, or write me a direct message.",
                }
            case _:
                ctx.log.info("slack.ignored", type=str(payload.get("type"))[:80])
        return None

    async def _event(self, ctx: Context, envelope: Mapping[str, Any]) -> None:
        def joined(token: str) -> bool:
            return ctx.session(token) is not None

        decision = decide(envelope, self._me, self.rules, joined=joined)
        if isinstance(decision, Ask):
            await self._ask(ctx, decision)
        elif isinstance(decision, Stop):
            await self._stop(ctx, decision)
        else:
            ctx.log.debug("slack.ignored", reason=decision.reason)

    async def _ask(self, ctx: Context, ask: Ask) -> None:
        token = ask.place.token
        if not self._heeds(ask):
            ctx.log.info("slack.ignored", reason="bots talk among themselves", token=token)
            return
        self._order.note(token, ask.ts, ctx.clock.now())
        try:
            delivery = await ctx.send(
                ask.text,
                continuation_token=token,
                delivery_id=ask.delivery_id,
                principal=_principal(ask.person),
                metadata=metadata(ask),
            )
        except DeliveryConflict:
            # The same post in another wording, as its twin or an edit has it: it was accepted.
            return
        if ask.person.bot and delivery.admitted != "duplicate":
            self._streaks[token] = self._streaks.get(token, 0) + 1

    def _heeds(self, ask: Ask) -> bool:
        """Tell whether a post is heard; of bots only so many without a person in between."""
        token = ask.place.token
        if not ask.person.bot:
            self._streaks.pop(token, None)
            return True
        while len(self._streaks) > _MANY_BOTS:
            self._streaks.popitem(last=False)
        return self._streaks.get(token, 0) < self.rules.bot_turns

    async def _stop(self, ctx: Context, stop: Stop) -> None:
        """Stop what is older than the stop; its twins and retries change nothing more."""
        token, name = stop.place.token, f"{stop.place.token}:{stop.ts}"
        if not self._order.first(name):
            return
        try:
            stopped = await ctx.stop(
                token, clear_pending=True, before=self._order.before(token, stop.ts)
            )
        except BaseException:
            self._order.forget(name)
            raise
        if not stopped:
            ctx.defer(self._whisper(stop.place, stop.person.user, "Nothing is running here."))

    # Buttons

    async def _clicked(self, ctx: Context, click: forms.Click) -> None:
        decisions: dict[str, Literal["approved", "denied"]] = {
            cards.APPROVE: "approved",
            cards.DENY: "denied",
        }
        called = cards.decision_of(click.value)
        if click.action not in decisions or called is None:
            ctx.log.info("slack.ignored", action=click.action[:80])
            return
        person = Person(click.team, click.user)
        try:
            if not self.rules.admits(click.user):
                raise Forbidden("You may not decide this.")
            await ctx.resolve_approval(
                *called, decisions[click.action], principal=_principal(person, click.name)
            )
        except (ApprovalClosed, Forbidden, NotFound) as refused:
            session = ctx.session(called[0])
            token = session.continuation_token if session is not None else None
            if token is not None:
                ctx.defer(self._whisper(Place.of(token), click.user, refused.message))

    async def _whisper(self, place: Place, user: str, text: str) -> None:
        """Tell one person something; only they see it."""
        await self._api.chat_postEphemeral(
            channel=place.channel, user=user, thread_ts=place.root, text=text
        )

    # Before a turn

    async def prepare(self, ctx: Context, delivery: DeliveryRecord) -> Prepared | None:
        """Fetch names, files, and what was said since the agent's last answer."""
        if "token" not in delivery.metadata:
            return None
        session = ctx.session(delivery.session_id)
        new = session is None or await session.next_index() <= 1
        earlier = new or not self.rules.follow_ups
        return await self._gatherer.gather(delivery.metadata, self._me, earlier=earlier)

    # Out

    async def _answered(self, event: Event[MessageCompleted], ctx: EventContext) -> None:
        """Post the final answer, in as many messages as it takes."""
        if event.data.finish_reason == "stop" and event.data.parent_call_id is None:
            await self._say(ctx, event.data.text)

    async def _turn_failed(self, event: Event[TurnFailed], ctx: EventContext) -> None:
        """Say why there is no answer; a turn that goes on says nothing."""
        await self._show(ctx, "")
        if event.data.code == "stopped":
            await self._say(ctx, "Stopped.")
        elif event.data.code not in _GOES_ON:
            why = event.data.message or "something went wrong"
            await self._say(ctx, f"There is no answer: {why} (`{event.turn_id}`)")

    async def _turn_started(self, event: Event[TurnStarted], ctx: EventContext) -> None:
        await self._show(ctx, _THINKING)

    async def _turn_completed(self, event: Event[TurnCompleted], ctx: EventContext) -> None:
        await self._show(ctx, "")

    async def _using(self, event: Event[ActionsRequested], ctx: EventContext) -> None:
        names = list(dict.fromkeys(call.tool_name for call in event.data.calls))
        await self._show(ctx, f"is using {', '.join(names)[:80]}…")

    async def _approval_asked(self, event: Event[ApprovalRequested], ctx: EventContext) -> None:
        """Post the card, with the buttons."""
        asked = event.data
        value = cards.button_value(event.session_id, asked.call_id)
        card = cards.asked(asked.tool_name, asked.input, value, asked.approvers)
        await self._card(ctx, asked.call_id, card.text, card.blocks)

    async def _approval_decided(self, event: Event[ApprovalResolved], ctx: EventContext) -> None:
        """Take the buttons away, and show who decided."""
        decided = event.data
        by = decided.by
        card = cards.decided(f"call `{decided.call_id}`", decided.decision, by, decided.reason)
        await self._card(ctx, decided.call_id, card.text, card.blocks)

    async def _card(
        self, ctx: EventContext, call_id: str, text: str, blocks: list[dict[str, Any]]
    ) -> None:
        if (place := _place_of(ctx)) is not None:
            said = content(text, blocks)
            await ctx.post(self._thread(place), text, key=f"approval/{call_id}", metadata=said)

    async def _say(self, ctx: EventContext, markdown: str) -> None:
        place = _place_of(ctx)
        if place is None:
            return
        for message in compose(markdown, mentions=self._mentions):
            # The whole text tells one post from another; what is shown is in the metadata.
            whole = "\n".join(str(block.get("text", "")) for block in message.blocks)
            said = content(message.text, message.blocks)
            await ctx.post(self._thread(place), whole, metadata=said)

    async def _show(self, ctx: EventContext, text: str) -> None:
        place = _place_of(ctx)
        if place is not None and self._status.available:
            target = self._status.target(place)
            await ctx.progress(target, lambda: self._status.show(place, text))

    def _thread(self, place: Place) -> Thread:
        return Thread(self._api, place)

    @property
    def _api(self) -> AsyncWebClient:
        if self._client is None:
            raise RuntimeError("The channel has not been started.")
        return self._client


def _principal(person: Person, name: str | None = None) -> Principal:
    attributes = {"team": person.team, "user": person.user}
    marks = {"bot": person.bot, "external": person.external}
    more = {key: True for key, value in marks.items() if value}
    return Principal("slack", f"{person.team}:{person.user}", name, attributes | more)


def _place_of(ctx: EventContext) -> Place | None:
    token = ctx.session_record.continuation_token
    return Place.of(token) if token is not None else None
