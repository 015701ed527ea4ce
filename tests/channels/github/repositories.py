"""Repositories on the disk with pull requests, as GitHub keeps them, and a server for them.

A pull request's head is at ``refs/pull/N/head`` of the repository that it is for, wherever its
author's branch is.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from threadline.testing.serving import end, listen

__all__ = ["Link", "Module", "Origin", "Program", "Served", "serving", "system_git"]

_WHEN = "2026-01-01T00:00:00Z"
_WHO = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Dev"), ("EMAIL", "dev@example.com"), ("DATE", _WHEN))
}
_ALONE = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C.UTF-8"}


def system_git(
    *words: str | bytes,
    cwd: Path,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """Call git as a person or an agent would, and return what it prints."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", *words],
        cwd=cwd,
        input=stdin if stdin is not None else b"",
        env={**kept, **_ALONE, **_WHO, **(env or {})},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, (words, done.stderr.decode("utf-8", "replace"))
    return done.stdout.decode("utf-8", "replace").strip()


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link as content of a file."""

    target: str


@dataclass(frozen=True, slots=True)
class Module:
    """A submodule at a commit as content of a file."""

    sha: str = "1" * 40


@dataclass(frozen=True, slots=True)
class Program:
    """A file that may be run."""

    text: str


Content = str | bytes | Link | Module | Program | None
Files = Mapping[str | bytes, Content]


@dataclass
class Origin:
    """A bare repository: ``main`` is its default branch."""

    path: Path
    commits: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True)
        self.git("init", "--quiet", "--bare", "--initial-branch=main", ".")

    @property
    def url(self) -> str:
        """Its address."""
        return f"file://{self.path}"

    def git(self, *words: str | bytes, stdin: bytes | None = None, index: str = "") -> str:
        """Call git in it."""
        env = {"GIT_INDEX_FILE": index} if index else {}
        return system_git(*words, cwd=self.path, stdin=stdin, env=env)

    def commit(
        self, ref: str, files: Files, *, onto: str | None = None, fresh: bool = False
    ) -> str:
        """Commit changed files (None: deleted) to a branch or ref, and return the commit.

        ``onto``: what it starts from, the ref itself if not given. ``fresh``: on nothing at all.
        """
        name = ref if ref.startswith("refs/") else f"refs/heads/{ref}"
        parent = None if fresh else onto or self.sha(name)
        self.commits += 1
        index = str(self.path / f"index-{self.commits}")
        if parent:
            self.git("read-tree", parent, index=index)
        lines = b"".join(self._line(path, content) for path, content in files.items())
        self.git("update-index", "-z", "--index-info", stdin=lines, index=index)
        tree = self.git("write-tree", index=index)
        Path(index).unlink(missing_ok=True)
        words = ["-p", self.git("rev-parse", parent)] if parent else []
        sha = self.git("commit-tree", *words, "-m", f"Commit {self.commits}", tree)
        self.git("update-ref", name, sha)
        return sha

    def pull(self, number: int, files: Files, *, onto: str | None = None) -> str:
        """Push a commit to a pull request: on its head, or on main if it has none, or on another.

        ``onto`` something else than its head is a forced push.
        """
        ref = f"refs/pull/{number}/head"
        return self.commit(ref, files, onto=onto or self.sha(ref) or "refs/heads/main")

    def sha(self, ref: str) -> str | None:
        """Return the commit of a ref."""
        return self.git("for-each-ref", "--format=%(objectname)", ref) or None

    def delete(self, ref: str) -> None:
        """Delete a ref."""
        self.git("update-ref", "-d", ref)

    def forget(self) -> None:
        """Drop every object that no ref leads to."""
        self.git("gc", "--quiet", "--prune=now")

    def _line(self, path: str | bytes, content: Content) -> bytes:
        mode, sha = "100644", "0" * 40
        if content is None:
            mode = "0"
        elif isinstance(content, Module):
            mode, sha = "160000", content.sha
        else:
            if isinstance(content, Link):
                mode, data = "120000", content.target.encode()
            elif isinstance(content, Program):
                mode, data = "100755", content.text.encode()
            else:
                data = content.encode() if isinstance(content, str) else content
            sha = self.git("hash-object", "-w", "--stdin", stdin=data)
        name = path.encode() if isinstance(path, str) else path
        return f"{mode} {sha}\t".encode() + name + b"\0"


# Over HTTP

Before = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


@dataclass
class Served:
    """A server of repositories that asks for a token.

    ``tokens`` are those that it takes; ``seen`` are the requests, ``path`` and who asked.
    ``before``: answers a request instead of git, if it returns something.
    """

    root: Path
    tokens: set[str]
    url: str = ""
    seen: list[tuple[str, str]] = field(default_factory=list)
    before: Before | None = None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer as GitHub does: 401 without a token that it takes."""
        given = request.headers.get("Authorization", "")
        self.seen.append((request.path_qs, given))
        kind, _, value = given.partition(" ")
        token = base64.b64decode(value).decode().removeprefix("x-access-token:") if value else ""
        if kind != "Basic" or token not in self.tokens:
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="GitHub"'})
        answer = await self.before(request) if self.before is not None else None
        return answer if answer is not None else await self.backend(request)

    async def backend(self, request: web.Request) -> web.Response:
        """Let git answer, by the common gateway interface; aiohttp has inflated the body."""
        told = {
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query_string,
            "REQUEST_METHOD": request.method,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }
        process = await asyncio.create_subprocess_exec(
            "git",
            "http-backend",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={"PATH": os.environ.get("PATH", os.defpath), **_ALONE, **told},
        )
        out, _ = await process.communicate(await request.read())
        head, _, body = out.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        status = int(headers.pop("Status", "200").split()[0])
        return web.Response(status=status, headers=headers, body=body)


@contextlib.asynccontextmanager
async def serving(root: Path, *tokens: str) -> AsyncIterator[Served]:
    """Serve all repositories below a folder: ``<url>/<folder>``."""
    served = Served(root, set(tokens))
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", served.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    listening = await listen(runner)
    served.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        yield served
    finally:
        await end(runner, listening)
