"""The repository of a demo: a bare one that GitHub would hold, and a clone to commit in.

Commits go to a server through its API for git objects, which calls them as git does.
https://docs.github.com/en/rest/git
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from threadline.errors import Unavailable

__all__ = ["Call", "Origin", "check_git"]

Call: TypeAlias = Callable[[str, str, Any], Awaitable[Any]]
"""Calls a path of the API with a method and data; returns the answer, None where there is none."""

_FORMAT = "%an%n%ae%n%aI%n%cn%n%ce%n%cI%n%T%n%P%n%B"
_ENV = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
}


def check_git() -> None:
    """Raise Unavailable where there is no git."""
    if shutil.which("git") is None:
        raise Unavailable("git is missing: install it and run this again.")


class Origin:
    """A repository with real commits, in a folder that exists."""

    def __init__(self, folder: Path) -> None:
        self.bare = folder / "origin.git"
        self._folder = folder
        self._clone = folder / "clone"
        self._published: set[str] = set()

    async def start(self) -> None:
        """Make it, with no commit; raises Unavailable where there is no git."""
        check_git()
        make = ("init", "-q", "--initial-branch=main")
        await self._git(self._folder, *make, "--bare", str(self.bare))
        await self._git(self.bare, "config", "uploadpack.allowAnySHA1InWant", "true")
        await self._git(self._folder, *make, str(self._clone))
        await self._git(self._clone, "remote", "add", "origin", str(self.bare))

    async def commit(
        self, branch: str, files: Mapping[str, str], message: str, *, since: str = "main"
    ) -> str:
        """Commit files to a branch, which begins at ``since``; returns the commit."""
        for begin in (branch, since):
            if await self.head(begin) is not None:
                await self._git(self._clone, "checkout", "-q", "-B", branch, f"origin/{begin}")
                break
        for name, text in files.items():
            path = self._clone / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        await self._git(self._clone, "add", "--all")
        # The same files again are a commit as well: who pushes twice sees two.
        commit = ("commit", "-q", "--allow-empty", "--no-gpg-sign", "-m", message)
        await self._git(self._clone, *commit)
        await self._git(self._clone, "push", "-q", "-f", "origin", f"HEAD:refs/heads/{branch}")
        await self._git(self._clone, "fetch", "-q", "origin")
        return (await self._git(self._clone, "rev-parse", "HEAD")).strip()

    async def head(self, branch: str) -> str | None:
        """Return a branch's commit; None when there is no such branch."""
        ref = f"refs/heads/{branch}"
        found = await self._git(self.bare, "for-each-ref", "--format=%(objectname)", ref)
        return found.strip() or None

    async def point(self, ref: str, commit: str) -> None:
        """Let a ref name a commit."""
        await self._git(self.bare, "update-ref", ref, commit)

    async def diff(self, base: str, head: str) -> str:
        """Return what ``head`` changes since it left ``base``, as a unified diff."""
        return await self._git(self.bare, "diff", "--no-color", f"{base}...{head}")

    async def publish(self, branch: str, call: Call) -> str:
        """Bring a branch, and the objects that it needs, to a server; returns its commit.

        Raises RuntimeError when the server calls a commit otherwise than git does.
        """
        head = await self.head(branch)
        assert head is not None, branch
        for commit in (await self._git(self.bare, "rev-list", "--reverse", head)).split():
            if commit not in self._published:
                await self._publish(commit, call)
                self._published.add(commit)
        moved = await call("PATCH", f"/git/refs/heads/{branch}", {"sha": head, "force": True})
        if moved is None:
            await call("POST", "/git/refs", {"ref": f"refs/heads/{branch}", "sha": head})
        return head

    async def _publish(self, commit: str, call: Call) -> None:
        entries = []
        listed = await self._git(self.bare, "ls-tree", "-r", "-z", commit)
        for line in filter(None, listed.split("\0")):
            about, _, path = line.partition("\t")
            mode, kind, sha = about.split()
            content = base64.b64encode(await self._read(self.bare, "cat-file", kind, sha)).decode()
            await call("POST", "/git/blobs", {"content": content, "encoding": "base64"})
            entries.append({"path": path, "mode": mode, "type": kind, "sha": sha})
        tree = await call("POST", "/git/trees", {"tree": entries})
        shown = await self._git(self.bare, "show", "-s", f"--format={_FORMAT}", commit)
        name, email, date, by, by_email, by_date, sha, parents, message = shown.split("\n", 8)
        made = await call(
            "POST",
            "/git/commits",
            {
                "message": f"{message.strip()}\n",
                "tree": tree["sha"],
                "parents": parents.split(),
                "author": {"name": name, "email": email, "date": date},
                "committer": {"name": by, "email": by_email, "date": by_date},
            },
        )
        if (tree["sha"], made["sha"]) != (sha, commit):
            raise RuntimeError(f"The server calls {commit} {made['sha']}.")

    async def _git(self, where: Path, *words: str) -> str:
        return (await self._read(where, *words)).decode("utf-8", "replace")

    async def _read(self, where: Path, *words: str) -> bytes:
        """Run git in a folder; returns what it says. Raises RuntimeError."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        process = await asyncio.create_subprocess_exec(
            "git", *words, cwd=where, env=kept | _ENV, stdout=PIPE, stderr=PIPE
        )
        said, problem = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"git {words[0]}: {problem.decode('utf-8', 'replace').strip()}")
        return said
