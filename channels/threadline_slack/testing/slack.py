"""FakeSlack: a Slack on a loopback port, for tests of what talks to Slack.

::

    async with FakeSlack(clock=manual_clock) as slack:
        slack.app.request_url = f"{host}/v1/channels/slack/events"
        client = AsyncWebClient(token=slack.app.bot_token, base_url=slack.api_url)
        asked = slack.user("U0HUMAN001").post("C0CHAN0001", "<@U0AGENT001> hello")
        await slack.until(lambda: len(slack.visible("C0CHAN0001", asked.ts)) == 2)

It starts with one team, one app and two people, whose ids are in ``DEFAULTS``. Real clients connect
to it: slack_sdk by ``api_url``, Bolt by HTTP or by Socket Mode.

It does what docs.slack.dev says. Reported by others, and not documented: the life, the capacity and
the shape of a stream, a second ``app_mention`` after an edit, the tombstone of a thread, that files
without access end at a page to sign in. Guesses: apps hear of the start and end of a stream and not
of its growth; a retried envelope keeps its id; later pages of a thread do not repeat the root; a
stream that a person stopped can be edited.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from threadline.clock import Clock, SystemClock
from threadline.testing.fake import FakeService
from threadline.testing.pulse import Pulse
from threadline_slack.testing.activity import Activity
from threadline_slack.testing.agentuser import Hands
from threadline_slack.testing.api import WebApi
from threadline_slack.testing.events import Publisher
from threadline_slack.testing.faults import Faults
from threadline_slack.testing.interactions import Interactions
from threadline_slack.testing.model import App
from threadline_slack.testing.outbound import Answer, Outbound
from threadline_slack.testing.pages import Pages
from threadline_slack.testing.people import Bot, Person
from threadline_slack.testing.reading import Reading
from threadline_slack.testing.seeding import Seeding
from threadline_slack.testing.setup import Checks
from threadline_slack.testing.sockets import Socket, Sockets
from threadline_slack.testing.state import Options, State
from threadline_slack.testing.table import Desk
from threadline_slack.testing.uploads import Uploads
from threadline_slack.testing.views import Views

__all__ = ["FakeSlack"]


class FakeSlack(FakeService, Seeding, Reading):
    """A Slack with its people, on a free port of 127.0.0.1 unless ``port`` says which.

    ``clock`` is the machine's unless a test gives one: retries, time limits, expiry and rate limits
    go by it. ``patience`` is how many real seconds a test waits for anything. Other options are
    those of :class:`~threadline_slack.testing.state.Options`, and may be changed in ``options`` at
    any time. ``fail``, ``stub``, ``drop``, ``delay``, ``hold`` and ``heal`` are those of
    :class:`~threadline_slack.testing.faults.Faults`; ``events`` has the faults of events.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        port: int = 0,
        patience: float = 15.0,
        **options: Any,
    ) -> None:
        super().__init__(port)
        self.clock: Clock = clock or SystemClock()
        self.options = Options(**options)
        self.state = State(self.clock, self.options)
        self.pulse = Pulse(patience)
        self.views = Views(self.state)
        self.faults = Faults()
        self._sockets = Sockets(self.state, self.pulse)
        self.outbound = Outbound(self.state, self.pulse, self._sockets)
        self.events = self.outbound.faults
        self._publisher = Publisher(self.state, self.outbound.event)
        self._activity = Activity(self.state, self._publisher)
        self._uploads = Uploads(self.state)
        self.interactions = Interactions(
            self.state, self._activity, self.views, self.outbound, self._sockets
        )
        self.checks = Checks(self.state, self.outbound)
        self.pages = Pages(self.state, self._activity, self.interactions, self._uploads, self.pulse)
        desk = Desk(
            self.state,
            self._activity,
            self._publisher,
            self.views,
            self._sockets,
            self._uploads,
        )
        self.api = WebApi(desk, self.faults, self.pulse)
        self.fail, self.stub, self.drop = self.faults.fail, self.faults.stub, self.faults.drop
        self.delay, self.hold, self.heal = self.faults.delay, self.faults.hold, self.faults.heal
        self.seed()

    # Life

    def _routes(self) -> list[web.RouteDef]:
        return [
            web.route("*", "/api/{method}", self.api.handle),
            web.get("/link/", self._sockets.connect),
            *self.pages.routes(),
        ]

    async def _opened(self, url: str) -> None:
        self.state.url = url
        await self.outbound.open()

    async def _closing(self) -> None:
        self.heal()
        await self.outbound.close()
        await self._sockets.close()

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.state.url

    @property
    def api_url(self) -> str:
        """What ``AsyncWebClient(base_url=…)`` and ``SLACK_API_URL`` take."""
        return f"{self.state.url}/api/"

    # Who acts

    def user(self, identity: str) -> Person:
        """Return a person to act as."""
        return Person(self.state.user(identity), self._hands())

    def bot(self, bot_id: str) -> Bot:
        """Return the bot of another app to post as; see ``add_bot``."""
        for user in self.state.users.values():
            if user.bot_id == bot_id:
                return Bot(user, self._hands())
        raise LookupError(f"There is no bot {bot_id!r}; call slack.add_bot().")

    def _hands(self) -> Hands:
        return Hands(
            self.state,
            self._activity,
            self._publisher,
            self.interactions,
            self.views,
            self._uploads,
            lambda: self.app,
        )

    def sockets(self, app: App | None = None) -> list[Socket]:
        """Return the connections of an app that Slack holds for alive, the oldest first."""
        return self._sockets.of((app or self.app).id)

    @property
    def all_sockets(self) -> list[Socket]:
        """Every connection there has ever been."""
        return list(self._sockets.all)

    # What Slack does by itself

    async def verify_url(self, app: App | None = None) -> Answer:
        """Send ``url_verification``; the answer's body has to hold the challenge."""
        return await self.checks.verify(app or self.app)

    async def check_ssl(self, app: App | None = None) -> Answer:
        """Send ``ssl_check``, the form that certificates are checked with."""
        return await self.checks.ssl(app or self.app)

    def limit_events(self, app: App | None = None) -> None:
        """Send ``app_rate_limited``: the app got more events than it may."""
        self.checks.limited(app or self.app)

    def revoke(self, app: App | None = None) -> None:
        """Remove an app: its tokens are good for nothing, and it is told."""
        install = (app or self.app).install
        tokens = {"type": "tokens_revoked", "tokens": {"oauth": [], "bot": [install.bot_user]}}
        self._publisher.tell(install, "tokens_revoked", tokens)
        self._publisher.tell(install, "app_uninstalled", {"type": "app_uninstalled"})
        install.revoked = True
