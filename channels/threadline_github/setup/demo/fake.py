"""The GitHub of a demo where there is no Node.js: a FakeGitHub in this process."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadline_github.setup.demo.origin import check_git
from threadline_github.setup.demo.seed import MEMBER, REPOSITORY
from threadline_github.setup.demo.servers import check_free

if TYPE_CHECKING:
    from aiohttp import ClientSession

    from threadline_github.testing import FakeGitHub

__all__ = ["Fake"]


class Fake:
    """A FakeGitHub with a repository in git."""

    kind = "FakeGitHub"

    def __init__(self, bot: str, port: int = 0) -> None:
        from threadline_github.testing import FakeGitHub

        self.bot = bot
        self._port = port
        self.repository = REPOSITORY
        self.github: FakeGitHub = FakeGitHub(port=port)
        self._folder = tempfile.TemporaryDirectory(prefix="threadline-github-")
        self._base: Mapping[str, str] = {}
        self._token = ""
        self._http: ClientSession | None = None

    @property
    def url(self) -> str:
        """The address of its API."""
        return self.github.api_url

    @property
    def environment(self) -> Mapping[str, str]:
        """What the environment says of the bot, after ``GITHUB_``."""
        found = self.github.environ.items()
        return {name.removeprefix("GITHUB_"): value for name, value in found}

    async def start(self, hook: str, base: Mapping[str, str]) -> None:
        """Start it; raises Unavailable when the port is taken, or there is no git.

        The files of ``base`` come with the pull request that changes them.
        """
        import aiohttp

        check_free(self._port)
        check_git()
        github, self._base = self.github, base
        await github.start()
        self._http = aiohttp.ClientSession()
        github.app.slug = self.bot
        github.app.bot.login = f"{self.bot}[bot]"
        github.app.webhook_url = hook
        github.add_user(MEMBER)
        github.associate(MEMBER, "MEMBER")
        repository = github.add_repository(REPOSITORY)
        github.install(repository.owner)
        github.back(repository, Path(self._folder.name) / "origin.git", http=True)
        self._token = github.personal_token(MEMBER)

    async def close(self) -> None:
        """End it."""
        if self._http is not None:
            await self._http.close()
        await self.github.close()
        self._folder.cleanup()

    async def open_pull(self, branch: str, files: Mapping[str, str], title: str, body: str) -> int:
        """Let a member open a pull request; returns its number."""
        pull = self.github.user(MEMBER).open_pull(
            REPOSITORY, title=title, body=body, branch=branch, files=self._changes(files)
        )
        return pull.number

    async def push(self, number: int, files: Mapping[str, str], message: str) -> str:
        """Let a member push to a pull request; returns the commit."""
        pull = self.github.pull(number, REPOSITORY)
        return self.github.user(MEMBER).push(pull, files=self._changes(files))

    async def comment(self, number: int, text: str, *, login: str | None = None) -> int:
        """Let a person comment, a member by default; returns the comment's id."""
        pull = self.github.pull(number, REPOSITORY)
        return self.github.user(login or MEMBER).comment(pull, text).id

    async def shut(self, number: int) -> None:
        """Let a member close a pull request."""
        self.github.user(MEMBER).close(self.github.pull(number, REPOSITORY))

    async def read(self, path: str) -> Any:
        """Read a path below the repository's; None when that is refused."""
        assert self._http is not None
        headers = {"Authorization": f"token {self._token}"}
        address = f"{self.url}/repos/{REPOSITORY}{path}"
        async with self._http.get(address, headers=headers) as answer:
            return await answer.json() if answer.status < HTTPStatus.BAD_REQUEST else None

    def _changes(self, files: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
        return {name: (self._base.get(name), text) for name, text in files.items()}
