"""FakeGitHub's pull requests as real commits of a bare repository."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from threadline.testing import ManualClock
from threadline_github.testing import FakeGitHub
from threadline_github.testing.diffs import patches


@pytest.fixture
async def github() -> AsyncIterator[FakeGitHub]:
    async with FakeGitHub(clock=ManualClock()) as running:
        yield running


async def fetched(url: str, cwd: Path, header: str | None = None) -> int:
    """Clone as the channel does, with a header; returns git's status."""
    words = [] if header is None else ["-c", f"http.extraHeader={header}"]
    process = await asyncio.create_subprocess_exec(
        "git",
        *words,
        "clone",
        "--quiet",
        url,
        "copy",
        cwd=cwd,
        env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_GLOBAL": os.devnull},
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()


def git(*words: str, cwd: Path) -> str:
    done = subprocess.run(["git", *words], cwd=cwd, capture_output=True, check=True)
    return done.stdout.decode()


async def test_a_pull_request_is_real(github: FakeGitHub, tmp_path: Path) -> None:
    repository = github.back(None, tmp_path / "origin.git")
    dev = github.user("dev-one")
    pull = dev.open_pull(files={"a.py": ("x = 1\n", "x = 2\n"), "ü.txt": (None, "new\n")})
    git("clone", "--quiet", repository.clone_url, "copy", cwd=tmp_path)
    copy = tmp_path / "copy"
    assert git("rev-parse", "HEAD", cwd=copy).strip() == pull.base_sha
    assert (copy / "a.py").read_text() == "x = 1\n"
    git("fetch", "--quiet", "origin", f"refs/pull/{pull.number}/head", cwd=copy)
    assert git("rev-parse", "FETCH_HEAD", cwd=copy).strip() == pull.head
    assert git("rev-parse", "origin/retry", cwd=copy).strip() == pull.head
    assert git("show", f"{pull.head}:a.py", cwd=copy) == "x = 2\n"
    assert "+x = 2" in pull.diff
    assert [patch.path for patch in patches(pull.diff)] == ["a.py", "ü.txt"]
    assert git("log", "-1", "--format=%cn %cI", pull.head, cwd=copy).strip() == (
        "dev-one 2025-01-01T00:00:00+00:00"
    )


async def test_pushes_are_commits(github: FakeGitHub, tmp_path: Path) -> None:
    bare = github.back(None, tmp_path / "origin.git").bare
    assert bare is not None
    dev = github.user("dev-one")
    pull = dev.open_pull(files={"a.py": ("x = 1\n", "x = 2\n")})
    first, second = pull.head, dev.push(pull, files={"b.py": (None, "y = 1\n")})
    assert git("rev-parse", f"{second}^", cwd=bare).strip() == first
    assert "+y = 1" in pull.diff
    assert "+x = 2" in pull.diff
    forced = dev.push(pull, files={"c.py": (None, "z = 1\n")}, force=True)
    assert git("rev-parse", f"{forced}^", cwd=bare).strip() == pull.base_sha
    assert "x = 2" not in pull.diff
    assert git("rev-parse", "refs/pull/1/head", cwd=bare).strip() == forced
    dev.push(pull, files={"c.py": ("z = 1\n", None)})
    assert pull.diff == ""


async def test_a_forks_branch_is_not_in_the_repository(github: FakeGitHub, tmp_path: Path) -> None:
    bare = github.back(None, tmp_path / "origin.git").bare
    assert bare is not None
    pull = github.user("dev-two").open_pull(fork=True)
    refs = git("for-each-ref", "--format=%(refname)", cwd=bare).split()
    assert refs == ["refs/heads/main", "refs/pull/1/head"]
    assert github.repository().branches == {"main": pull.base_sha}


async def test_several_pull_requests(github: FakeGitHub, tmp_path: Path) -> None:
    github.back(None, tmp_path / "origin.git")
    dev = github.user("dev-one")
    first = dev.open_pull(files={"a.py": ("1\n", "2\n")}, branch="one")
    second = dev.open_pull(files={"b.py": ("1\n", "3\n")}, branch="two")
    assert [pull.diff.count("diff --git") for pull in (first, second)] == [1, 1]
    assert first.head != second.head


async def test_git_over_http(github: FakeGitHub, tmp_path: Path) -> None:
    repository = github.back(None, tmp_path / "origin.git", http=True)
    github.user("dev-one").open_pull(files={"a.py": ("x = 1\n", "x = 2\n")})
    assert repository.clone_url == f"{github.url}/octo-fixture/widget.git"
    assert await fetched(repository.clone_url, tmp_path) == 0
    assert (tmp_path / "copy" / "a.py").read_text() == "x = 1\n"
    assert {call.caller for call in github.git.calls} == {None}


async def test_git_over_http_asks_for_a_token(github: FakeGitHub, tmp_path: Path) -> None:
    repository = github.back(None, tmp_path / "origin.git", http=True)
    repository.private = True
    assert await fetched(repository.clone_url, tmp_path) != 0
    assert github.git.calls[-1].status == 401
    token = github.personal_token("dev-two")
    basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    header = f"Authorization: Basic {basic}"
    assert await fetched(repository.clone_url, tmp_path, header) == 0
    assert (github.git.calls[-1].caller, github.git.calls[-1].token) == ("dev-two", token)
    github.revoke(token)
    (tmp_path / "copy").rename(tmp_path / "first")
    assert await fetched(repository.clone_url, tmp_path, header) != 0
    assert await fetched(f"{github.url}/octo-fixture/none.git", tmp_path) != 0


async def test_nothing_is_pushed_over_http(github: FakeGitHub, tmp_path: Path) -> None:
    repository = github.back(None, tmp_path / "origin.git", http=True)
    assert await fetched(repository.clone_url, tmp_path) == 0
    process = await asyncio.create_subprocess_exec(
        "git",
        "push",
        "--quiet",
        "origin",
        "HEAD:refs/heads/more",
        cwd=tmp_path / "copy",
        env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() != 0
    assert github.git.calls[-1].status == 403
