"""An app that many workspaces install: a real host with OAuth, a FakeSlack with several teams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
from cryptography.fernet import Fernet
from tests.channels.slack.world import EVENTS, TEAM, World, at

from threadline import Agent, Context
from threadline.harness.base import Harness
from threadline.harness.scripted import Scripted
from threadline.store.base import OutboundRecord
from threadline.testing import ManualClock, TestHost
from threadline_slack import SlackChannel
from threadline_slack.bots import Bots
from threadline_slack.config import Config, OAuth
from threadline_slack.testing import FakeSlack
from threadline_slack.testing.model import Install

__all__ = [
    "KEY",
    "OTHER_KEY",
    "ROUTES",
    "SECOND",
    "SECOND_CHANNEL",
    "SECOND_PERSON",
    "Many",
    "many",
]

KEY, OTHER_KEY = (Fernet.generate_key().decode() for _ in range(2))
SECOND, SECOND_PERSON, SECOND_CHANNEL = "T0SECOND01", "U0SECOND01", "C0SECOND01"
ROUTES = "/v1/channels/slack"


@dataclass
class Many(World):
    """A host whose app is installed by whoever wants to."""

    settings: dict[str, Any] = field(default_factory=dict)

    def use_keys(self, *keys: str) -> None:
        """Change the keys, from the next start on."""
        config = self.settings["config"]
        self.settings["config"] = replace(config, oauth=replace(config.oauth, keys=keys))

    @property
    def bots(self) -> Bots:
        """The channel's bots."""
        return self.channel.bots

    @property
    def context(self) -> Context:
        """What the channel's code is given."""
        return Context(self.host.agent().runtimes["slack"])

    @property
    def token(self) -> str:
        """The first workspace's token."""
        return self.slack.app.installs[0].token

    async def restart(self, *, how: str = "crash") -> None:
        """Start again, on another port."""
        await getattr(self.host, how)()
        if not self.host.running:
            await self.host.start()
        self.slack.app.request_url = self.host.url + EVENTS

    async def browse(self, path: str, *, follow: bool = True, **headers: str) -> Any:
        """Open a page as a browser does, with its cookies; returns status, text, address."""
        jar = aiohttp.CookieJar(treat_as_secure_origin=[self.host.url], unsafe=True)  # type: ignore[arg-type]
        async with (
            aiohttp.ClientSession(cookie_jar=jar) as browser,
            browser.get(self.host.url + path, allow_redirects=follow, headers=headers) as answer,
        ):
            return answer.status, await answer.text(), answer

    async def install(self, team: str = TEAM) -> None:
        """Install the app in a workspace, as a person with a browser does."""
        status, text, _ = await self.browse(f"{ROUTES}/install?team={team}")
        assert status == 200, text
        found = next(one for one in self.slack.app.installs if one.team == team)
        for channel in self.slack.state.channels.values():
            if channel.teams[0] == team:
                channel.members.setdefault(found.bot_user)

    async def come_back(self, install: Install) -> int:
        """Install what Slack's page of FakeSlack does not offer; returns the status."""
        _, _, answer = await self.browse(f"{ROUTES}/install", follow=False)
        state = parse_qs(urlsplit(answer.headers["Location"]).query)["state"][0]
        code = self.slack.grant_code(install)
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
        status, _, _ = await self.browse(
            f"{ROUTES}/oauth_redirect?code={code}&state={state}", Cookie=cookie
        )
        return int(status)

    def outbound(self, token: str) -> Sequence[OutboundRecord]:
        """Return what the channel posted in a conversation, or gave up."""
        store = self.host.agent().store
        record = store.session_by_token("slack", token)
        assert record is not None
        return store.outbound(record.id)

    async def asked(self, team: str, channel: str, user: str, text: str = "hello") -> str:
        """Ask a workspace's bot, and wait for the answer; returns the token."""
        bot = next(
            one.bot_user
            for one in self.slack.app.installs
            if not one.revoked and one.team in (team, None)
        )
        ts = self.slack.user(user).post(channel, f"<@{bot}> {text}").ts
        assert (await self.shown(2, ts, channel))[1:] == [text]
        return f"slack:{team}:{channel}:{ts}"


@asynccontextmanager
async def many(
    harness: Harness | None = None,
    *,
    clock: ManualClock | None = None,
    keys: tuple[str, ...] = (KEY,),
    socket: bool = False,
    installations: str | None = None,
    installations_store: Any = None,
    **options: Any,
) -> AsyncIterator[Many]:
    """Serve an app that nobody has installed yet; there are two workspaces."""
    clock = clock or at()
    harness = harness or Scripted()
    async with FakeSlack(clock=clock) as slack:
        app = slack.app
        slack.add_team(SECOND, name="Beta", domain="beta-test")
        slack.add_user(SECOND_PERSON, "eve", team=SECOND)
        slack.add_channel(SECOND_CHANNEL, "second", members=[SECOND_PERSON], teams=[SECOND])
        oauth = OAuth(app.client_id, app.client_secret, keys, installations)
        transport = (app.app_token, None) if socket else (None, app.signing_secret)
        config = Config(None, *transport, slack.api_url, oauth)
        settings = {"config": config, "installations": installations_store, **options}

        def agent() -> Agent:
            channel = SlackChannel(**settings)
            return Agent(
                name="Helper", instructions="Answer.", harness=harness, channels={"slack": channel}
            )

        async with TestHost(agent, clock=clock, channel_id="slack") as host:
            app.socket_mode = socket
            app.request_url = None if socket else host.url + EVENTS
            yield Many(slack, host, harness, clock, settings)
