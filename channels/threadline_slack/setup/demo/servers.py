"""The Slack of a demo: a program that serves one, or a FakeSlack with a small page."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from threadline.errors import Unavailable
from threadline_slack.words.compose import compose

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

    from threadline_slack.setup.demo.page import Page
    from threadline_slack.testing import FakeSlack

__all__ = ["Fake", "Local", "Server", "free_port", "in_sections"]

_SECONDS = 20.0
_TOKEN, _APP_TOKEN = "xoxb-demo", "xapp-demo"
_PEOPLE = {"U0HUMAN001": ("ada", "Ada"), "U0HUMAN002": ("grace", "Grace")}
_BOT, _CHANNEL = "U0AGENT001", "general"


class Server(Protocol):
    """A Slack on this machine."""

    @property
    def kind(self) -> str:
        """What it is, in words."""

    @property
    def url(self) -> str:
        """Where people write."""

    async def start(self) -> None:
        """Start it; returns when it answers."""

    async def close(self) -> None:
        """End it, however far it came."""

    def adapt(self, client: AsyncWebClient) -> None:
        """Let a bot's client say things as the page can show them."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What a bot's environment says, without its prefix."""


def free_port() -> int:
    """Return a port that nobody has right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def in_sections(blocks: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return blocks with sections of mrkdwn in place of those of Markdown."""
    found: list[Mapping[str, Any]] = []
    for block in blocks:
        if block.get("type") == "markdown":
            for message in compose(str(block.get("text", "")), form="mrkdwn"):
                found += message.blocks
        else:
            found.append(block)
    return found


def _check_free(port: int) -> None:
    """Raise Unavailable when somebody has a port; whoever answers there is not ours."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise Unavailable(f"Port {port} cannot be had: {error.strerror}.") from error


class Local:
    """The local Slack server, a program of its own; see tests/real/slack/install.sh."""

    kind = "The local Slack server"

    def __init__(self, program: Path, bot: str, port: int = 0) -> None:
        self._program = program
        self._bot = bot
        self._port = port or free_port()
        self._process: asyncio.subprocess.Process | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    @property
    def environment(self) -> Mapping[str, str]:
        """What a bot's environment says, without its prefix."""
        return {
            "BOT_TOKEN": _TOKEN,
            "APP_TOKEN": _APP_TOKEN,
            "API_URL": f"{self.url}/api/",
        }

    async def start(self) -> None:
        """Start it; raises Unavailable when it cannot be had, or does not answer."""
        _check_free(self._port)
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "slack.json"
            config.write_text(json.dumps(self._config()))
            command = ["--config", str(config), "--port", str(self._port)]
            # A session of its own: Ctrl-C is for the host, which may still have words to post.
            self._process = await asyncio.create_subprocess_exec(
                self._program,
                *command,
                "--base-host",
                "127.0.0.1",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
            await self._up(self._process)

    def adapt(self, client: AsyncWebClient) -> None:
        """Send sections in place of markdown blocks, of which the page shows nothing."""
        call = client.api_call

        async def adapted(method: str, *, json: Any = None, **options: Any) -> Any:
            if isinstance(json, dict) and json.get("blocks"):
                json = {**json, "blocks": in_sections(json["blocks"])}
            return await call(method, json=json, **options)

        vars(client)["api_call"] = adapted

    async def close(self) -> None:
        """End it, and wait until it has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _up(self, process: asyncio.subprocess.Process) -> None:
        import aiohttp

        loop = asyncio.get_running_loop()
        end = loop.time() + _SECONDS
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1)) as http:
            while loop.time() < end and process.returncode is None:
                try:
                    async with http.get(f"{self.url}/_control/state"):
                        return
                except (aiohttp.ClientError, TimeoutError):
                    await asyncio.sleep(0.05)
        raise Unavailable(f"{self._program.name} does not answer at {self.url}.")

    def _config(self) -> dict[str, object]:
        app = {
            "appId": "A0AGENT001",
            "botUserId": _BOT,
            "botName": self._bot,
            "botToken": _TOKEN,
            "appToken": _APP_TOKEN,
            "signingSecret": "demo",
            "mode": "socket",
        }
        return {
            "workspace": {"name": "demo"},
            "apps": [app],
            "users": [{"id": id_, "name": name} for id_, (name, _) in _PEOPLE.items()],
            "channels": [{"id": "C0CHAN0001", "name": _CHANNEL, "members": [_BOT, *_PEOPLE]}],
        }


class Fake:
    """A FakeSlack in this process, and its page."""

    kind = "FakeSlack, with a small page,"

    def __init__(self, bot: str, port: int = 0) -> None:
        from threadline_slack.setup.demo.page import Page
        from threadline_slack.testing import FakeSlack

        self.slack: FakeSlack = FakeSlack()
        self._page: Page = Page(self.slack, port)
        self._port = port
        self._bot = bot

    @property
    def url(self) -> str:
        """Where its page is."""
        return self._page.url

    @property
    def environment(self) -> Mapping[str, str]:
        """What a bot's environment says, without its prefix."""
        app = self.slack.app
        return {
            "BOT_TOKEN": app.bot_token,
            "APP_TOKEN": app.app_token,
            "API_URL": self.slack.api_url,
        }

    async def start(self) -> None:
        """Start it; raises Unavailable when the port is taken."""
        _check_free(self._port)
        await self.slack.start()
        self.slack.app.socket_mode = True
        self.slack.app.name = self._bot
        users = self.slack.state.users
        users[self.slack.app.bot_user].name = self._bot
        for identity, (name, real_name) in _PEOPLE.items():
            users[identity].name, users[identity].real_name = name, real_name
            self.slack.user(identity).dm()
        await self._page.start()

    def adapt(self, client: AsyncWebClient) -> None:
        """Nothing has to be said otherwise."""

    async def close(self) -> None:
        """End it."""
        await self._page.close()
        await self.slack.close()
