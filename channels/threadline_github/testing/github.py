r"""FakeGitHub: a GitHub on a loopback port, for tests of what talks to GitHub.

::

    async with FakeGitHub(clock=manual_clock) as github:
        github.app.webhook_url = f"{host}/v1/channels/github"
        config = Config.read(github.environ)
        pull = github.user("dev-one").open_pull(files={"a.py": ("x = 1\n", "x = 2\n")})
        github.user("dev-two").comment(pull, "@agent-fixture look at this")
        await github.until(lambda: len(github.comments(pull)) == 2)

It starts with one repository, one app that is installed there, and three people, whose names are in
``DEFAULTS``. Real clients connect to it by ``api_url``.

It does what docs.github.com says. Reported by others, and not documented: the sentences of errors,
that a call for a repository under its old name is answered 301 or 307 with the address by its id,
what a failed delivery is called. Of its own: each hook that an event goes to has a GUID of its own;
an app needs a permission for public repositories too; commits exist only as far as pull requests
know of them, unless a real git repository stands behind: see ``back``.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from threadline.clock import Clock, SystemClock
from threadline.testing.fake import FakeService
from threadline.testing.pulse import Pulse
from threadline_github.testing.activity import Activity
from threadline_github.testing.api import Api
from threadline_github.testing.events import Publisher
from threadline_github.testing.faults import Faults
from threadline_github.testing.people import Person
from threadline_github.testing.reading import Reading
from threadline_github.testing.smart import SmartHttp
from threadline_github.testing.state import Options, State
from threadline_github.testing.table import Desk
from threadline_github.testing.webhooks import Webhooks
from threadline_github.testing.wire import Wire

__all__ = ["FakeGitHub"]


class FakeGitHub(FakeService, Reading):
    """A GitHub with its people, on a free port of 127.0.0.1 unless ``port`` says which.

    ``clock`` is the machine's unless a test gives one: tokens, limits, time-outs and the age of
    deliveries go by it. ``path`` is where the API begins, ``/api/v3`` for an Enterprise server.
    ``patience`` is how many real seconds a test waits for anything. Other options are those of
    :class:`~threadline_github.testing.state.Options`, and may be changed in ``options`` at any
    time. ``fail``, ``limit``, ``drop``, ``delay``, ``hold`` and ``heal`` are those of
    :class:`~threadline_github.testing.faults.Faults`; ``webhooks`` has the faults of webhooks, and
    ``git.calls`` what git asked for.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        path: str = "",
        port: int = 0,
        patience: float = 15.0,
        **options: Any,
    ) -> None:
        super().__init__(port)
        self.clock: Clock = clock or SystemClock()
        self.options = Options(**options)
        self.state = State(self.clock, self.options)
        self.pulse = Pulse(patience)
        self.faults = Faults(self.clock)
        self._path = path
        wire = Wire(self.state)
        self.webhooks = Webhooks(self.state, self.pulse)
        self.publisher = Publisher(self.state, wire, self.webhooks)
        self._activity = Activity(self.state, self.publisher, wire)
        desk = Desk(self.state, wire, self._activity, self.publisher, self.webhooks)
        self.api = Api(desk, self.faults, self.pulse, path)
        self.git = SmartHttp(self.state, self.pulse)
        self.fail, self.limit, self.drop = self.faults.fail, self.faults.limit, self.faults.drop
        self.delay, self.hold, self.heal = self.faults.delay, self.faults.hold, self.faults.heal
        self.seed()

    # Life

    def _routes(self) -> list[web.RouteDef]:
        return [web.route("*", "/{path:.*}", self._handle)]

    async def _opened(self, url: str) -> None:
        self.state.url = url
        self.state.api = url + self._path
        for repository in self.state.repositories.values():
            repository.clone_url = repository.clone_url or self.clone_url(repository)
        await self.webhooks.open()

    async def _closing(self) -> None:
        self.heal()
        await self.webhooks.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self.git.wants(request.path):
            return await self.git.handle(request)
        return await self.api.handle(request)

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.state.url

    @property
    def api_url(self) -> str:
        """What ``GITHUB_API_URL`` takes."""
        return self.state.api

    @property
    def environ(self) -> dict[str, str]:
        """What a bot that is the app has in its environment."""
        return {
            "GITHUB_WEBHOOK_SECRET": self.app.webhook_secret,
            "GITHUB_APP_ID": str(self.app.id),
            "GITHUB_APP_PRIVATE_KEY": self.app.private_key,
            "GITHUB_API_URL": self.api_url,
        }

    def user(self, login: str) -> Person:
        """Return a person, or another bot, to act as."""
        return Person(self.state.account(login), self, self._activity)
