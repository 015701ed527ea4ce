"""Calls of git: alone with their configuration, bounded, and with no secret in what they say."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path

import psutil
import pytest
from tests.channels.github.repositories import Origin, serving, system_git

from threadline_github.workspace import disk
from threadline_github.workspace import git as module
from threadline_github.workspace.git import GitFailed, call, git, header, settings
from threadline_github.workspace.tree import Entry, change, is_instruction, links, parse, target
from threadline_github.workspace.worktrees import Source, Worktrees

SECRET = "ghp_SECRET0123456789"


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    origin = Origin(tmp_path / "server" / "widget.git")
    origin.commit("main", {"README.md": "hello\n"})
    return origin


def pretend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program of that script before git."""
    place = tmp_path / "bin"
    place.mkdir()
    (place / "git").write_text(f"#!/bin/sh\n{script}\n")
    (place / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")


async def test_what_git_prints(origin: Origin) -> None:
    assert await git("show", "main:README.md", cwd=origin.path, seconds=10) == "hello\n"
    blob = await git("hash-object", "-w", "--stdin", cwd=origin.path, seconds=10, stdin=b"\xff")
    assert await git("cat-file", "blob", blob.strip(), cwd=origin.path, seconds=10) == "�"
    done = await call("show", "-s", "no-such", cwd=origin.path, seconds=10, allowed=(0, 128))
    assert done.returncode == 128


async def test_git_is_told_nothing_by_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\n\tname = Somebody\n[core]\n\tfsmonitor = touch x\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("GIT_DIR", str(home))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'user.name=Other'")
    monkeypatch.setenv("GIT_SSH_COMMAND", "touch x")
    monkeypatch.setenv("API_KEY", SECRET)
    pretend(tmp_path, monkeypatch, "env")
    told = await git("version", cwd=tmp_path, seconds=10)
    assert SECRET not in told
    assert str(home) not in told
    assert "GIT_SSH_COMMAND" not in told
    lines = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
    assert lines["GIT_CONFIG_NOSYSTEM"] == "1"
    assert lines["GIT_CONFIG_GLOBAL"] == "/dev/null"
    assert lines["GIT_TERMINAL_PROMPT"] == "0"
    assert lines["GIT_CONFIG_KEY_0"] == "core.hooksPath"
    assert not Path(lines["HOME"]).exists()


async def test_the_way_out_of_the_network_is_the_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    pretend(tmp_path, monkeypatch, "env")
    assert "HTTPS_PROXY=http://proxy.example:3128" in await git("x", cwd=tmp_path, seconds=10)


async def test_configuration_holds_over_that_of_the_repository(origin: Origin) -> None:
    origin.git("config", "core.fsmonitor", "touch x")
    origin.git("config", "core.hooksPath", "/tmp/hooks")
    for key, value in (("core.fsmonitor", "false"), ("core.hooksPath", "/dev/null")):
        assert (await git("config", key, cwd=origin.path, seconds=10)).strip() == value
    more = (("core.fsmonitor", "other"),)
    done = await call("config", "core.fsmonitor", cwd=origin.path, seconds=10, more=more)
    assert done.text.strip() == "other"
    assert settings([("a.b", "c")]) == {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "a.b",
        "GIT_CONFIG_VALUE_0": "c",
    }


async def test_no_secret_is_in_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, value = header("https://github.com/o/r.git", SECRET)
    assert key == "http.https://github.com/o/r.git.extraHeader"
    coded = value.removeprefix("Authorization: Basic ")
    assert base64.b64decode(coded).decode() == f"x-access-token:{SECRET}"
    said = f"fatal: bad {SECRET} {coded} https://me:pass@host/x\\033[31m " + "y" * 900
    pretend(tmp_path, monkeypatch, f"printf '{said}' >&2; exit 128")
    with pytest.raises(GitFailed) as failed:
        await git("fetch", cwd=tmp_path, seconds=10, secrets=(SECRET,))
    text = str(failed.value)
    assert "bad *** *** https://***@host/x [31m yyy" in text
    assert len(text) < 400
    assert failed.value.to_wire()["error"] == "git_failed"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "fatal: could not read Username for 'https://x': terminal prompts disabled",
            "credentials",
        ),
        (
            "fatal: unable to access 'https://x/': The requested URL returned error: 403",
            "credentials",
        ),
        ("remote: Repository not found.\nfatal: repository 'https://x/' not found", "missing"),
        ("fatal: couldn't find remote ref refs/pull/7/head", "missing"),
        ("fatal: unable to access 'https://x/': Could not resolve host: x", "network"),
        ("error: RPC failed; curl 56\nfatal: early EOF", "network"),
        ("fatal: unable to access 'https://x/': The requested URL returned error: 502", "network"),
        ("fatal: unable to update url base from redirection:", "moved"),
        ("fatal: not a git repository: '/x'", "damaged"),
        ("error: object file .git/objects/aa/bb is empty", "damaged"),
        ("fatal: write error: No space left on device", "other"),
        ("", "other"),
    ],
)
async def test_why_git_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, reason: str
) -> None:
    (tmp_path / "said").write_text(said)
    pretend(tmp_path, monkeypatch, f"cat {tmp_path}/said >&2; exit 128")
    with pytest.raises(GitFailed) as failed:
        await git("-c", "a=b", "fetch", cwd=tmp_path, seconds=10)
    assert failed.value.reason == reason
    assert "git a=b: " in str(failed.value) or "git fetch: " in str(failed.value)
    assert (said.splitlines() or ["exit code 128"])[-1].removeprefix("fatal: ").removeprefix(
        "error: "
    ) in str(failed.value)


async def test_what_is_too_long_is_ended(origin: Origin, tmp_path: Path) -> None:
    origin.commit("main", {"long.txt": b"x" * 3_000_000})
    show = ("cat-file", "blob", "main:long.txt")
    cut = await call(*show, cwd=origin.path, seconds=10, most=1000)
    assert (len(cut.stdout), cut.truncated, cut.returncode) == (1000, True, 0)
    whole = await call(*show, cwd=origin.path, seconds=10, most=3_000_000)
    assert (len(whole.stdout), whole.truncated) == (3_000_000, False)
    with pytest.raises(GitFailed, match=r"no-such"):
        await call("cat-file", "blob", "main:no-such", cwd=origin.path, seconds=10, most=10)


async def test_a_call_that_takes_too_long_or_is_cancelled_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmp_path / "pid"
    pretend(
        tmp_path,
        monkeypatch,
        f"trap '' TERM\nsleep 600 &\necho $! > {pid}.new; mv {pid}.new {pid}; wait; sleep 600",
    )
    with pytest.raises(TimeoutError, match=r"git fetch did not end within 0\.5 seconds"):
        await git("--no-pager", "fetch", cwd=tmp_path, seconds=0.5)
    pid.unlink(missing_ok=True)
    task = asyncio.ensure_future(git("fetch", cwd=tmp_path, seconds=600))
    while not pid.exists():  # noqa: ASYNC110 - processes get there without telling
        await asyncio.sleep(0.01)
    child = int(pid.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not psutil.pid_exists(child) or (psutil.Process(child).status() == psutil.STATUS_ZOMBIE)


async def test_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GitFailed, match="no folder"):
        await git("version", cwd=tmp_path / "none", seconds=10)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitFailed, match="git is not installed"):
        await git("version", cwd=tmp_path, seconds=10)


async def test_a_git_that_takes_no_configuration_by_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(tmp_path, monkeypatch, "echo git version 2.30.9")
    trees = Worktrees(tmp_path / "trees")
    with pytest.raises(GitFailed, match=r"git 2\.31 or later .*2\.30\.9"):
        await trees.move(1, 7, Source("https://x.example/x.git", "main"), head="", trusted=True)
    assert module.OLDEST == (2, 31)


async def test_a_token_is_sent_to_its_repository_alone(origin: Origin, tmp_path: Path) -> None:
    Origin(tmp_path / "server" / "other.git").commit("main", {"a": "a"})
    async with serving(tmp_path / "server", SECRET) as served:
        more = (header(f"{served.url}/widget.git", SECRET),)
        asking = ("ls-remote", f"{served.url}/widget.git")
        done = await call(*asking, cwd=tmp_path, seconds=10, more=more, secrets=(SECRET,))
        assert "refs/heads/main" in done.text
        with pytest.raises(GitFailed, match="refused the credentials"):
            await call("ls-remote", f"{served.url}/other.git", cwd=tmp_path, seconds=10, more=more)
        assert [given for path, given in served.seen if path.startswith("/other")] == [""]


# What is no instruction to a harness, and what is


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        (b"AGENTS.md", True),
        (b"a/b/Claude.MD", True),
        (b".claude/x", True),
        (b"a/.Cursor/rules/x.mdc", True),
        (b".cursorrules", True),
        (b"x/.mcp.json", True),
        (b"AGENTS.override.md", True),
        (b".codex/config.toml", True),
        (b"docs/agents.md.txt", False),
        (b"claude/x", False),
        (b"\xff/CLAUDE.md", True),
        (b"docs/rules/x", True),
        (b"docs/rules.txt", False),
    ],
)
def test_instructions(path: bytes, is_one: bool) -> None:
    assert is_instruction(path, {b"docs/rules"}) == is_one


@pytest.mark.parametrize(
    ("link", "content", "leads_to"),
    [
        (b"CLAUDE.md", b"AGENTS.md", b"AGENTS.md"),
        (b"a/CLAUDE.md", b"../docs/x.md", b"docs/x.md"),
        (b"CLAUDE.md", b"../x", None),
        (b"CLAUDE.md", b"/etc/passwd", None),
        (b".claude", b".", None),
        (b"a/.claude", b"..", None),
    ],
)
def test_where_a_link_leads(link: bytes, content: bytes, leads_to: bytes | None) -> None:
    assert target(link, content) == leads_to


def entries(*names: str, sha: str = "a" * 40) -> dict[bytes, Entry]:
    return {name.encode(): Entry(name.encode(), "100644", sha, 1) for name in names}


def test_a_listing_and_what_changes_in_it() -> None:
    listing = (
        f"100644 blob {'a' * 40}       6\tAGENTS.md\0"
        f"120000 blob {'b' * 40}       9\tCLAUDE.md\0"
        f"160000 commit {'c' * 40}       -\tsub\0"
    ).encode()
    files = parse(listing)
    assert [(one.path, one.size) for one in files.values()] == [
        (b"AGENTS.md", 6),
        (b"CLAUDE.md", 9),
        (b"sub", 0),
    ]
    assert [one.path for one in links(files, ())] == [b"CLAUDE.md"]
    assert files[b"sub"].is_module
    assert not change(files, files)
    assert not change(files, None)
    base = entries("AGENTS.md", "x/CLAUDE.md", ".claude")
    head = entries("AGENTS.md", "x", ".claude/y", "z/AGENTS.md", "src", sha="d" * 40)
    changed = change(head, base)
    assert set(changed.hidden) == {b"AGENTS.md", b".claude/y", b"z/AGENTS.md"}
    assert {one.path for one in changed.added} == {b"AGENTS.md", b".claude"}
    assert changed.foreign == (b".claude",)


# Folders of others


def test_a_locked_folder_is_removed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").write_text("x")
    inner = tmp_path / "tree" / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    (inner / "link").symlink_to(outside)
    disk._unlock(tmp_path / "tree")
    for place in (inner, inner.parent):
        place.chmod(0)
    disk.discard(tmp_path / "tree")
    disk.discard(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
    assert (outside / "keep").exists()


async def test_work_on_the_disk_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("12345")
    assert await disk.to_the_end(disk.size, tmp_path) == 5
    gate, began = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(began.set)
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()
        (tmp_path / "done").write_text("x")

    task = asyncio.ensure_future(disk.to_the_end(work))
    await began.wait()
    task.cancel()
    loop.call_soon(gate.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tmp_path / "done").exists()


def test_the_helper_is_a_person(origin: Origin) -> None:
    assert "Dev" in system_git("log", "--format=%an", "main", cwd=origin.path)
