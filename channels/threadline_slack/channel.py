"""The Slack channel: mentions, direct messages and threads, over HTTP or Socket Mode.

Nothing is asked of Slack before a message is durable. Names, history and files are fetched by
``prepare``; answers, notes and approval cards are posted by the handlers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from threadline import (
    Channel,
    Context,
    DeliveriesCleared,
    Event,
    EventContext,
    Prepared,
    Principal,
    Reply,
    RouteContext,
)
from threadline.channel.auth import AuthRequest, Policy, documented
from threadline.channel.tokens import matching
from threadline.errors import InvalidRequest, Unauthorized
from threadline.session.access import Action
from threadline.store.base import DeliveryRecord, SessionRecord
from threadline_slack.agents import Agents
from threadline_slack.assistant import Assistant
from threadline_slack.bots import Bots
from threadline_slack.config import Config
from threadline_slack.inbound.decide import TOKEN, Gone, Place, Rules
from threadline_slack.inbound.gather import Limits
from threadline_slack.inbound.lookout import Lookout
from threadline_slack.inbound.receive import Receiver
from threadline_slack.inbound.watch import Watch
from threadline_slack.installing.oauth import INSTALLER, Installing, browsers
from threadline_slack.interaction import forms
from threadline_slack.interaction.approvals import Approvals
from threadline_slack.interaction.commands import ASK
from threadline_slack.interaction.declared import Declared, Interactive
from threadline_slack.interaction.feedback import Feedback
from threadline_slack.interaction.interactions import Interactions
from threadline_slack.outbound.askers import Askers
from threadline_slack.outbound.outputs import Outputs
from threadline_slack.outbound.reactions import Acknowledgements, Reactions
from threadline_slack.outbound.replies import Replies, ReplyMode
from threadline_slack.outbound.status import StatusText
from threadline_slack.people import place_of

if TYPE_CHECKING:
    from slack_sdk.oauth.installation_store.async_installation_store import AsyncInstallationStore
    from slack_sdk.signature import SignatureVerifier

    from threadline_slack.inbound.sockets import Sockets

__all__ = ["SlackChannel"]


class SlackChannel(Channel, Interactive):
    """Conversations in Slack; ``SlackChannel()`` in ``agent/channels/slack.py`` is all there is.

    The tokens come from the environment, see :class:`~threadline_slack.config.Config`; ``prefix``
    is that of a second bot's variables, as ``TRIAGE_``. ``installations`` is a store of who
    installed the app, where the environment's is not wanted. ``follow_ups``, ``flat_dms``,
    ``external``, ``bots``, ``bot_turns``, ``allowed`` and ``blocked`` are
    :class:`~threadline_slack.inbound.decide.Rules`. ``mentions`` are the user ids that an answer
    may notify. ``reply`` is ``"post"``: the final answer; ``"stream"``: every message, as it grows;
    or ``"agent"``: every message, whole. ``status`` is what the line under a thread says while the
    agent works, see :class:`~threadline_slack.outbound.status.StatusText`. ``sockets`` is how many
    connections Socket Mode keeps, 1 to 10. ``limits`` says what a message may bring along.
    ``watch`` says in which channels posts need no mention, see
    :func:`~threadline_slack.inbound.watch.watch`; several may differ in how.

    ``assistant``: the app is declared an agent. ``suggested_prompts`` are up to four
    ``(title, message)`` that a new conversation offers. ``reactions`` show at a message that came
    while the agent was busy what became of it, with the emoji of
    :class:`~threadline_slack.outbound.reactions.Reactions` if others are wanted.

    ``action``, ``view``, ``options``, ``command``, ``shortcut`` and ``reaction`` declare handlers,
    see :class:`~threadline_slack.interaction.declared.Interactive`. ``commands`` are slash commands
    that ask the agent, with how Slack describes them; ``message_shortcut`` is the title of an entry
    in each message's menu that asks about the message. ``feedback`` puts two buttons below each
    answer.
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
        reply: ReplyMode = "post",
        status: StatusText | bool = True,
        assistant: bool = False,
        suggested_prompts: Sequence[tuple[str, str]] = (),
        suggested_prompts_title: str | None = None,
        reactions: bool | Reactions = True,
        commands: Mapping[str, str] | None = None,
        message_shortcut: str | None = None,
        feedback: bool = False,
        sockets: int = 2,
        watch: Watch | Sequence[Watch] = (),
        limits: Limits | None = None,
        installations: AsyncInstallationStore | None = None,
        config: Config | None = None,
    ) -> None:
        if reply not in get_args(ReplyMode):
            raise ValueError(f"reply is 'post', 'stream' or 'agent', not {reply!r}.")
        super().__init__(
            auth=[browsers(self), self._policy()],
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
        Interactive.__init__(self)
        for name, about in (commands or {}).items():
            self._offer("command", name, Declared(None, about, hint="question"))
        if message_shortcut is not None:
            self._offer("shortcut", ASK, Declared(None, title=message_shortcut))
        self.feedback = feedback
        self.env_prefix = prefix
        self._config = config
        self.bots = Bots(limits, installations)
        Installing(self, self.bots)
        self._verifier: SignatureVerifier | None = None
        self._count = sockets
        self._sockets: Sockets | None = None
        prompts = Assistant.of(suggested_prompts, suggested_prompts_title)
        self.assistant = prompts if assistant or prompts.prompts else None
        interactions = Interactions(self, self.bots, self.rules)
        Approvals(self, self.bots, interactions)
        Feedback(self.bots, interactions)
        Outputs(self, self.bots)
        Replies(self, self.bots, Askers(self), mentions, reply, _texts(status), feedback=feedback)
        self._agents = Agents(self, self.bots, self.rules, self.assistant)
        self._acks = Acknowledgements(self, self.bots, reactions)
        self.acks = self._acks.on
        self.lookout = Lookout([watch] if isinstance(watch, Watch) else watch)
        self.on("deliveries.cleared")(self._cleared)
        self._receiver = Receiver(
            self.bots,
            self.rules,
            interactions,
            self._agents,
            self._acks,
            self.lookout,
            self._gone,
        )
        self.post(
            "/events",
            description="Slack's events, clicks and commands, signed.",
            raises=(InvalidRequest,),
        )(self.receive)

    # Life

    async def on_start(self, ctx: Context) -> None:
        """Read the tokens, and connect; raises ProjectError when they cannot be used."""
        config = self._config or Config.read(os.environ, self.env_prefix)
        from slack_sdk.signature import Clock, SignatureVerifier

        clock = ctx.clock

        class HostClock(Clock):
            def now(self) -> float:
                return clock.now().timestamp()

        if config.signing_secret is not None:
            self._verifier = SignatureVerifier(config.signing_secret, HostClock())
        await self.bots.open(ctx, config)
        await self.lookout.open(ctx)
        if self.bots.workspaces is None and self.lookout.due(ctx, ""):
            await self.lookout.look_up(ctx, "", (await self.bots.of("")).client)
        await self._acks.open(ctx)
        await self._receiver.open(ctx)
        if config.app_token is not None:
            await self._listen(ctx, config.app_token, config.api_url)

    async def _listen(self, ctx: Context, app_token: str, api_url: str) -> None:
        """Open the sockets; while Slack is away the host starts all the same, and it goes on."""
        from threadline_slack.inbound.sockets import Sockets

        async def take(payload: Mapping[str, Any]) -> Any:
            return await self._receiver.take(ctx, payload)

        self._sockets = Sockets(
            app_token, api_url, take, count=self._count, clock=ctx.clock, log=ctx.log
        )
        await self._sockets.start()

    async def on_stop(self, ctx: Context) -> None:
        """Close the connections."""
        if self._sockets is not None:
            await self._sockets.close()
        await self._agents.close()
        await self._acks.close()
        await self.bots.close()
        self._sockets = None

    # In

    def may(self, principal: Principal, session: SessionRecord, action: Action) -> bool:
        """Whoever installs the app may do nothing in its conversations by that."""
        return principal.kind != INSTALLER and super().may(principal, session, action)

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

    async def _gone(self, gone: Gone) -> None:
        """Say nothing more below a question that was deleted."""
        if gone.root and not gone.own:
            (await self.bots.of(gone.place.team)).deleted.add(gone.place)

    # Before a turn

    async def prepare(self, ctx: Context, delivery: DeliveryRecord) -> Prepared | None:
        """Fetch names, files, and what was said since the agent's last answer."""
        if "token" not in delivery.metadata:
            return None
        place = Place.of(str(delivery.metadata["token"]))
        watch = self.lookout.of(place.channel)
        heard = self.rules.follow_ups if watch is None else watch.posts == "all"
        bot = await self.bots.of(place.team)
        session = ctx.session(delivery.session_id)
        gathering = bot.gatherer.gather(delivery.metadata, bot.me, ctx.clock, session, heard=heard)
        found, told = await asyncio.gather(gathering, self.lookout.wait(ctx, delivery))
        seen = await self._agents.looking(ctx, delivery.metadata)
        return replace(found, context=[*told, *found.context, *seen])

    async def _cleared(self, event: Event[DeliveriesCleared], ctx: EventContext) -> None:
        """What these had fetched of their thread the model has not got."""
        place = place_of(ctx)
        if place is not None:
            (await self.bots.of(place.team)).gatherer.backfill.forget(place.token)


def _texts(status: StatusText | bool) -> StatusText | None:
    if isinstance(status, StatusText):
        return status
    return StatusText() if status else None
