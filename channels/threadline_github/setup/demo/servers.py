"""The GitHub of a demo: a program that serves one behind a gateway, or a FakeGitHub."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import tempfile
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from threadline.errors import Unavailable
from threadline_github.setup.demo.gateway import Gateway
from threadline_github.setup.demo.origin import Origin
from threadline_github.setup.demo.seed import (
    APP,
    INSTALLATION,
    MEMBER,
    REPOSITORY,
    SECRET,
    new_key,
    seed,
    token_of,
)

if TYPE_CHECKING:
    from aiohttp import ClientSession

__all__ = ["Local", "Server", "check_free", "free_port"]

_SECONDS = 20.0
_LOOPBACK = Path(__file__).parent / "assets" / "loopback.cjs"


class Server(Protocol):
    """A GitHub on this machine, with one repository in it."""

    @property
    def kind(self) -> str:
        """What it is, in words."""

    @property
    def url(self) -> str:
        """The address of its API."""

    @property
    def repository(self) -> str:
        """The repository's name, with its owner."""

    @property
    def bot(self) -> str:
        """The name by which people address the agent."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What the environment says of the bot, after ``GITHUB_``."""

    async def start(self, hook: str, base: Mapping[str, str]) -> None:
        """Start it with these files; returns when it answers. ``hook`` is where webhooks go."""

    async def close(self) -> None:
        """End it, however far it came."""

    async def open_pull(self, branch: str, files: Mapping[str, str], title: str, body: str) -> int:
        """Let a member open a pull request; returns its number."""

    async def push(self, number: int, files: Mapping[str, str], message: str) -> str:
        """Let a member push to a pull request; returns the commit."""

    async def comment(self, number: int, text: str, *, login: str | None = None) -> int:
        """Let a person comment, a member by default; returns the comment's id."""

    async def shut(self, number: int) -> None:
        """Let a member close a pull request."""

    async def read(self, path: str) -> Any:
        """Read a path below the repository's; None when that is refused."""


def free_port() -> int:
    """Return a port that nobody has right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def check_free(port: int) -> None:
    """Raise Unavailable when somebody has a port; whoever answers there is not ours."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or "a port is 0 to 65535"
            raise Unavailable(f"Port {port} cannot be had: {why}.") from error


class Local:
    """The local GitHub server, a program of its own; see tests/real/github/install.sh.

    It sends no event when somebody pushes to a pull request's branch: the gateway does.
    """

    kind = "The local GitHub server"

    def __init__(
        self,
        program: Path,
        bot: str,
        port: int = 0,
        *,
        permissions: Mapping[str, str] | None = None,
    ) -> None:
        self.bot = bot
        self.repository = REPOSITORY
        self._program = program
        self._port = port
        self._permissions = permissions
        self._key = new_key()
        self._folder = tempfile.TemporaryDirectory(prefix="threadline-github-")
        self.origin: Origin = Origin(Path(self._folder.name))
        self.gateway: Gateway = Gateway(
            self.origin, secret=SECRET, reader=token_of(MEMBER), port=port
        )
        self._process: asyncio.subprocess.Process | None = None
        self._http: ClientSession | None = None

    @property
    def url(self) -> str:
        """The address of its API."""
        return self.gateway.url

    @property
    def environment(self) -> Mapping[str, str]:
        """What the environment says of the bot, after ``GITHUB_``."""
        return {
            "API_URL": self.url,
            "APP_ID": str(APP),
            "APP_PRIVATE_KEY": self._key,
            "WEBHOOK_SECRET": SECRET,
        }

    async def start(self, hook: str, base: Mapping[str, str]) -> None:
        """Start it with these files; raises Unavailable when it cannot be had."""
        import aiohttp

        check_free(self._port)
        if not self._program.is_file():
            raise Unavailable(f"There is no {self._program}, which is to be the GitHub server.")
        if shutil.which("node") is None:
            raise Unavailable(
                "Node.js is missing, and the local GitHub server needs it. Install it, or leave "
                "the server out: FakeGitHub needs Python and git alone."
            )
        await self.origin.start()
        await self.gateway.start()
        self.gateway.hooks.target = hook
        self._http = aiohttp.ClientSession()
        port = free_port()
        self.gateway.upstream = f"http://127.0.0.1:{port}"
        config = Path(self._folder.name) / "seed.yaml"
        granted = {} if self._permissions is None else {"permissions": self._permissions}
        seeded = seed(self.bot, self.bot, self._key, f"{self.url}/_hook", **granted)
        config.write_text(json.dumps(seeded))
        command = ["--service", "github", "--port", str(port), "--seed", str(config)]
        # A session of its own: Ctrl-C is for the host, which may still have words to post.
        self._process = await asyncio.create_subprocess_exec(
            "node",
            "--require",
            str(_LOOPBACK),
            str(self._program),
            "start",
            *command,
            "--base-url",
            self.url,
            # It ends when this is closed, so that it outlives no host, however that ends.
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        await self._up(self._process, self._http)
        await self.origin.commit("main", base, "Begin")
        await self.origin.publish("main", self.call)

    async def open_pull(self, branch: str, files: Mapping[str, str], title: str, body: str) -> int:
        """Let a member open a pull request; returns its number."""
        await self.origin.commit(branch, files, title)
        await self.origin.publish(branch, self.call)
        opened = {"title": title, "body": body, "head": branch, "base": "main"}
        return int((await self.call("POST", "/pulls", opened))["number"])

    async def push(self, number: int, files: Mapping[str, str], message: str) -> str:
        """Let a member push to a pull request; returns the commit."""
        before = await self.read(f"/pulls/{number}")
        branch = before["head"]["ref"]
        await self.origin.commit(branch, files, message)
        after = await self.origin.publish(branch, self.call)
        pull = await self.read(f"/pulls/{number}")
        await self.gateway.send(
            "pull_request", self._synchronize(pull, before["head"]["sha"], after)
        )
        return after

    async def comment(self, number: int, text: str, *, login: str | None = None) -> int:
        """Let a person comment, a member by default; returns the comment's id."""
        path = f"/issues/{number}/comments"
        made = await self.call("POST", path, {"body": text}, login=login or MEMBER)
        return int(made["id"])

    async def shut(self, number: int) -> None:
        """Let a member close a pull request."""
        await self.call("PATCH", f"/pulls/{number}", {"state": "closed"})

    async def read(self, path: str) -> Any:
        """Read a path below the repository's; None when that is refused."""
        return await self.call("GET", path)

    async def call(self, method: str, path: str, data: Any = None, *, login: str = MEMBER) -> Any:
        """Call a path below the repository's as a person; None when it refuses."""
        assert self._http is not None
        headers = {"Authorization": f"token {token_of(login)}"}
        address = f"{self.url}/repos/{REPOSITORY}{path}"
        async with self._http.request(method, address, json=data, headers=headers) as answer:
            return await answer.json() if answer.status < HTTPStatus.BAD_REQUEST else None

    async def close(self) -> None:
        """End it, and wait until it has ended."""
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._http is not None:
            await self._http.close()
        await self.gateway.close()
        self._folder.cleanup()

    def _synchronize(self, pull: Mapping[str, Any], before: str, after: str) -> dict[str, Any]:
        return {
            "action": "synchronize",
            "number": pull["number"],
            "before": before,
            "after": after,
            "pull_request": dict(pull),
            "repository": pull["base"]["repo"],
            "sender": pull["user"],
            "installation": {"id": INSTALLATION},
        }

    async def _up(self, process: asyncio.subprocess.Process, http: ClientSession) -> None:
        import aiohttp

        loop = asyncio.get_running_loop()
        end = loop.time() + _SECONDS
        while loop.time() < end and process.returncode is None:
            try:
                async with http.get(f"{self.gateway.upstream}/zen"):
                    return
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)
        raise Unavailable(f"{self._program} does not answer at {self.gateway.upstream}.")
