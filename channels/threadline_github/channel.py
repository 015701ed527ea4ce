"""The GitHub channel: pull requests and issues as conversations, by signed webhooks.

Nothing is asked of GitHub before a delivery is durable. The pull request, its code and its diff are
fetched by ``prepare``; comments, reviews and checks are posted by the handlers.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from threadline import (
    Channel,
    Context,
    Event,
    EventContext,
    Prepared,
    Principal,
    Reply,
    RouteContext,
    Session,
    SessionWaiting,
    ThreadlineError,
)
from threadline.channel.auth import AuthRequest, Policy, documented
from threadline.channel.tokens import matching
from threadline.clock import iso
from threadline.errors import InvalidRequest, Unauthorized, Unavailable
from threadline.harness.base import ToolInfo
from threadline.store.base import DeliveryRecord
from threadline_github.config import Config
from threadline_github.hub import Hub
from threadline_github.inbound.decide import DEFAULT_ON, TRIGGERS, Rules
from threadline_github.inbound.names import TOKEN, Thread
from threadline_github.inbound.receive import Receiver
from threadline_github.inbound.sweep import Sweep
from threadline_github.inbound.trust import Trust
from threadline_github.inbound.webhook import is_signed, parse
from threadline_github.outbound.replies import Replies
from threadline_github.workspace.prompt import Prompter
from threadline_github.workspace.underway import is_under_way
from threadline_github.workspace.upkeep import Upkeep
from threadline_github.workspace.worktrees import Worktrees

__all__ = ["GitHubChannel"]

MAX_BODY = 25 * 1024 * 1024
"""What GitHub sends at most, in bytes."""

_ASSOCIATIONS = ("OWNER", "MEMBER", "COLLABORATOR")
_AGAIN_SECONDS = 30.0
_RUNS = ("running", "parked")
_BUSY = ("queued", *_RUNS)
_OVER = ("closed", "merged")
_MANY = 1_000
_LARGE = 1_000_000


class GitHubChannel(Channel):
    """Conversations in pull requests and issues; ``GitHubChannel()`` is a whole configuration.

    Secrets come from the environment, see :class:`~threadline_github.config.Config`; ``prefix`` is
    that of a second bot's variables, as ``TRIAGE_``. ``on`` is what starts a turn, of
    :data:`~threadline_github.inbound.decide.TRIGGERS`; ``commands`` are the names that count as
    ``/name`` at the beginning of a line. ``associations`` are of whom questions are taken, and
    ``bots`` the logins of other bots that may ask. ``repositories`` are full names; None is all in
    which the bot is installed.

    ``worktree``: each pull request's code is checked out, as its session's working folder;
    ``clone_seconds`` and ``clone_mb`` limit the clone. ``working``: a comment says that the agent
    works, and becomes the answer. ``check`` is the name of a check run that reports each turn which
    a commit started; an App may have one.
    """

    def __init__(
        self,
        *,
        prefix: str = "",
        on: Collection[str] = DEFAULT_ON,
        associations: Collection[str] = _ASSOCIATIONS,
        bots: Collection[str] = (),
        repositories: Collection[str] | None = None,
        commands: Collection[str] = (),
        worktree: bool = True,
        clone_seconds: float = 300.0,
        clone_mb: int = 2048,
        working: bool = True,
        check: str | None = None,
        config: Config | None = None,
    ) -> None:
        if unknown := set(on) - TRIGGERS:
            raise ValueError(
                f"on= has {', '.join(sorted(unknown))}; it may have {', '.join(sorted(TRIGGERS))}."
            )
        super().__init__(
            auth=[self._policy()],
            admission="coalesce",
            owner="channel",
            tokens=matching(TOKEN, example="pr:owner/repository#1", folds=True),
        )
        self.prepare_seconds = (clone_seconds if worktree else 0.0) + 120.0
        self.rules = Rules(
            on=frozenset(on),
            associations=frozenset(associations),
            bots=frozenset(bots),
            repositories=(
                None if repositories is None else frozenset(name.lower() for name in repositories)
            ),
            commands=frozenset(commands),
        )
        self.env_prefix = prefix
        self.worktree = worktree
        self.check = check
        self._clone = clone_seconds, clone_mb
        self._config = config
        self._secret = ""
        self.hub = Hub()
        self._trust = Trust(self.hub)
        self._worktrees: Worktrees | None = None
        self._prompter = Prompter(self.hub, lambda: self._worktrees, seconds=clone_seconds)
        self._receiver = Receiver(
            self.hub,
            self.rules,
            self._trust,
            folder=self._folder,
            closed=self._closed,
            unused=self._unused,
        )
        self._background: list[asyncio.Task[None]] = []
        self._early: dict[str, None] = {}
        Replies(self, self.hub, working=working, check=check)
        self.on("session.waiting")(self._rests)
        self.post(
            "/",
            description="GitHub's webhook, signed.",
            raises=(InvalidRequest, Unavailable),
            max_body=MAX_BODY,
        )(self.receive)

    # Life

    async def on_start(self, ctx: Context) -> None:
        """Read the secrets, find out who the bot is; raises ProjectError when they are no good."""
        config = self._config or Config.read(os.environ, self.env_prefix)
        self._secret = config.webhook_secret
        if self.worktree:
            seconds, megabytes = self._clone
            self._worktrees = Worktrees(ctx.folder, seconds=seconds, most_mb=megabytes)
        await self.hub.open(ctx, config)
        sweep = Sweep(
            self.hub, self._receiver, repositories=self.rules.repositories, path=self.prefix
        )
        work = [self._recognised(ctx), sweep.run(ctx)]
        if self._worktrees is not None:
            work += [self._tidied(ctx), Upkeep(self.hub, self._worktrees).run(ctx)]
        self._background = [asyncio.create_task(one) for one in work]

    async def on_stop(self, ctx: Context) -> None:
        """Close the connections."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._background = []
        await self.hub.close()

    async def _recognised(self, ctx: Context) -> None:
        """Ask again who the bot is, until GitHub says it."""
        while self.hub.me.login is None:
            await ctx.clock.sleep(_AGAIN_SECONDS)
            try:
                await self.hub.recognise(ctx)
            except ThreadlineError as error:
                ctx.log.warning("github.away", error=str(error))

    # In

    def _policy(self) -> Policy:
        """Admit what GitHub signed, over the very bytes that came."""

        @documented({"type": "apiKey", "in": "header", "name": "X-Hub-Signature-256"})
        def signed(request: AuthRequest) -> Principal:
            if request.headers.get("content-encoding", "identity").lower() != "identity":
                raise InvalidRequest("The body is compressed, which GitHub's never is.")
            header = request.headers.get("x-hub-signature-256", "")
            if not is_signed(self._secret, request.body, header):
                raise Unauthorized("The request is not signed with this webhook's secret.")
            return Principal("github-webhook", self.id)

        return signed

    async def receive(self, ctx: RouteContext) -> Reply:
        """Take one delivery of GitHub; 202 when it is durable, 200 when it is nothing for us."""
        event, delivery_id = (
            ctx.headers.get(name, "") for name in ("x-github-event", "x-github-delivery")
        )
        if not event or not delivery_id:
            raise InvalidRequest("X-GitHub-Event and X-GitHub-Delivery are needed.")
        kind = ctx.headers.get("content-type", "")
        if len(ctx.body) > _LARGE:
            payload = await asyncio.to_thread(parse, kind, ctx.body)
        else:
            payload = parse(kind, ctx.body)
        taken = await self._receiver.take(ctx, event, payload, delivery_id)
        body = {
            "ok": True,
            "event": event,
            "deliveries": [one.to_wire() for one in taken.deliveries],
            "ignored": taken.ignored,
        }
        return Reply(body, 202 if taken.deliveries else 200)

    # Before a turn

    async def prepare(self, ctx: Context, delivery: DeliveryRecord) -> Prepared | None:
        """Fetch the pull request or the issue, and check its code out."""
        session = ctx.session(delivery.session_id)
        token = session.continuation_token if session is not None else None
        thread = await self.hub.names.thread(ctx, token) if token is not None else None
        if session is None or thread is None:
            return None
        running = await self._runs(session, delivery)
        prepared = await self._prompter.gather(ctx, delivery, thread, running=running)
        head: dict[str, Any] | None = await ctx.kv.get(f"head/{session.id}")
        if head is not None and head.get("base") is not None:
            await self._trust.code(ctx, thread, fork=bool(head["fork"]))
        if not running:
            await self._note(ctx, thread, self._prompter.standing(session.id))
        return replace(prepared, provisional=running)

    async def _runs(self, session: Session, delivery: DeliveryRecord) -> bool:
        """Tell whether a turn has the working folder, be it one that waits to go on.

        What was prepared once while one had it, is prepared again for a turn of its own.
        """
        known = delivery.delivery_id in self._early
        self._early.pop(delivery.delivery_id, None)
        runs = session.status in _RUNS or (not known and await is_under_way(session))
        if runs:
            self._early[delivery.delivery_id] = None
            if len(self._early) > _MANY:
                del self._early[next(iter(self._early))]
        return runs

    async def refuse_tool(self, ctx: Context, session: Session, tool: ToolInfo) -> str | None:
        """No tool that writes where strangers, or their code, take part."""
        return await self._trust.refuses(ctx, session, tool)

    # The working folder

    def _folder(self, thread: Thread) -> Path | None:
        if self._worktrees is None or not thread.is_pull:
            return None
        return self._worktrees.ready(thread.repository.id, thread.number)

    async def _closed(self, ctx: Context, thread: Thread) -> None:
        """Let the working folder go, at once or when the conversation rests."""
        if self._worktrees is None:
            return
        if ctx.session(thread.token) is not None:
            await ctx.kv.put(_closed(thread), iso(ctx.clock.now()))
        ctx.defer(self._let_go(ctx, thread))

    async def _unused(self, ctx: Context, thread: Thread) -> None:
        """Remove a folder again that was made for a message which had been accepted before."""
        if self._worktrees is not None and await ctx.kv.get(_closed(thread)):
            ctx.defer(self._let_go(ctx, thread))

    async def _tidied(self, ctx: Context) -> None:
        """Remove what an earlier process was about to."""
        assert self._worktrees is not None
        for repository, number in await asyncio.to_thread(self._worktrees.untouched, math.inf):
            thread = await self.hub.names.pull(ctx, repository, number)
            if thread is not None and await ctx.kv.get(_closed(thread)):
                await self._let_go(ctx, thread)

    async def _note(self, ctx: Context, thread: Thread, read: tuple[str, datetime] | None) -> None:
        """Keep whether a pull request is closed, as GitHub says when a turn is about to begin.

        One that is closed while it is read may be read as open.
        """
        if self._worktrees is None or not thread.is_pull or read is None:
            return
        standing, began = read
        since: str | None = await ctx.kv.get(_closed(thread))
        if standing in _OVER and since is None:
            await ctx.kv.put(_closed(thread), iso(began))
        elif standing not in _OVER and since is not None and since < iso(began):
            await ctx.kv.delete(_closed(thread))

    async def _rests(self, event: Event[SessionWaiting], ctx: EventContext) -> None:
        """Remove the working folder of a pull request that was closed meanwhile."""
        thread = await self.hub.thread(ctx)
        if self._worktrees is None or thread is None or not thread.is_pull:
            return
        if await ctx.kv.get(_closed(thread)):
            await self._let_go(ctx, thread)

    async def _let_go(self, ctx: Context, thread: Thread) -> None:
        """Remove a working folder, unless a turn has it or is about to."""
        if self._worktrees is not None:
            await self._worktrees.remove(
                thread.repository.id,
                thread.number,
                unless=lambda: _is_busy(ctx, thread),
            )


def _is_busy(ctx: Context, thread: Thread) -> bool:
    session = ctx.session(thread.token)
    return session is not None and session.status in _BUSY


def _closed(thread: Thread) -> str:
    return f"closed/{thread.token}"
