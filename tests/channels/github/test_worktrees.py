"""Working folders of pull requests, with git on real repositories."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiohttp import web
from tests.channels.github.repositories import (
    Link,
    Module,
    Origin,
    Program,
    serving,
    system_git,
)

from threadline_github.workspace.diff import parse
from threadline_github.workspace.worktrees import (
    Checkout,
    GitFailed,
    Source,
    Worktrees,
    cut_short,
)

REPOSITORY = 900100
TOKEN = "ghs_0123456789abcdefSECRET"


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    origin = Origin(tmp_path / "server" / "widget.git")
    origin.commit("main", {"README.md": "hello\n", "src/up.py": "a = 1\nb = 2\n", "old.txt": "o\n"})
    origin.pull(7, {"src/up.py": "a = 1\nb = 3\n", "src/new.py": "new\n", "old.txt": None})
    return origin


@pytest.fixture
def trees(tmp_path: Path) -> Worktrees:
    return Worktrees(tmp_path / "trees")


async def move(
    trees: Worktrees,
    origin: Origin,
    number: int = 7,
    *,
    head: str = "",
    trusted: bool = True,
    base: str = "main",
    repository: int = REPOSITORY,
) -> Checkout:
    source = Source(origin.url, base)
    return await trees.move(repository, number, source, head=head, trusted=trusted)


def tree(path: Path) -> dict[str, str]:
    """Return the files, without those of git."""
    return {
        str(file.relative_to(path)): file.read_text() if not file.is_symlink() else "link"
        for file in path.rglob("*")
        if (file.is_file() or file.is_symlink()) and ".git" not in file.relative_to(path).parts
    }


def status(path: Path) -> str:
    return system_git("status", "--porcelain", "--ignored", cwd=path)


def mirror(trees: Worktrees) -> Path:
    return trees.path(REPOSITORY, 7).parent / "mirror.git"


# The way of a pull request


async def test_a_pull_request_from_its_opening_to_its_end(trees: Worktrees, origin: Origin) -> None:
    path = trees.ready(REPOSITORY, 7)
    assert path == trees.path(REPOSITORY, 7)
    assert path.is_dir()
    assert trees.current(REPOSITORY, 7) is None
    first = origin.sha("refs/pull/7/head")
    main = origin.sha("refs/heads/main")
    assert first is not None

    opened = await move(trees, origin, head=first)
    assert (opened.path, opened.head, opened.base, opened.moved) == (path, first, main, True)
    assert tree(path) == {
        "README.md": "hello\n",
        "src/up.py": "a = 1\nb = 3\n",
        "src/new.py": "new\n",
    }
    assert trees.current(REPOSITORY, 7) == first
    assert status(path) == ""
    assert system_git("rev-parse", "HEAD", "origin/main", cwd=path).split() == [first, main]
    assert {file.path for file in parse(opened.diff)} == {"src/up.py", "src/new.py", "old.txt"}
    assert "+b = 3\n" in opened.diff

    second = origin.pull(7, {"src/new.py": "newer\n"})
    moved = await move(trees, origin, head=second)
    assert (moved.head, moved.moved, tree(path)["src/new.py"]) == (second, True, "newer\n")

    await trees.remove(REPOSITORY, 7)
    await trees.remove(REPOSITORY, 7)
    assert not path.exists()
    assert trees.current(REPOSITORY, 7) is None
    assert [child.name for child in path.parent.iterdir()] == ["mirror.git"]
    refs = system_git("for-each-ref", "--format=%(refname)", cwd=mirror(trees))
    assert refs == "refs/heads/main"

    again = await move(trees, origin)
    assert (again.head, again.moved, status(path)) == (second, True, "")


async def test_the_diff_is_that_of_the_branch_alone(trees: Worktrees, origin: Origin) -> None:
    parted = origin.sha("refs/heads/main")
    origin.commit("main", {"README.md": "changed meanwhile\n"})
    checkout = await move(trees, origin)
    assert checkout.base == parted
    assert "README" not in checkout.diff


async def test_what_the_agent_left_stays_while_the_commit_is_the_same(
    trees: Worktrees, origin: Origin
) -> None:
    path = (await move(trees, origin)).path
    (path / "notes.txt").write_text("mine")
    (path / "README.md").write_text("edited")
    again = await move(trees, origin)
    assert not again.moved
    assert (tree(path)["notes.txt"], tree(path)["README.md"]) == ("mine", "edited")


async def test_a_commit_of_the_agent_is_not_taken_for_the_head(
    trees: Worktrees, origin: Origin
) -> None:
    first = await move(trees, origin)
    (first.path / "README.md").write_text("edited")
    system_git("commit", "--quiet", "-a", "-m", "mine", cwd=first.path)
    again = await move(trees, origin)
    assert again.moved
    assert system_git("rev-parse", "HEAD", cwd=first.path) == again.head == first.head
    assert tree(first.path)["README.md"] == "hello\n"


async def test_a_new_commit_comes_whatever_the_agent_has_left(
    trees: Worktrees, origin: Origin, tmp_path: Path
) -> None:
    origin.pull(7, {".gitignore": "build/\n", "docs/a.md": "a\n", "docs/b.md": "b\n"})
    path = (await move(trees, origin)).path
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep.txt").write_text("keep")
    (path / "README.md").write_text("edited")
    (path / "src" / "up.py").unlink()
    (path / "untracked").mkdir()
    (path / "untracked" / "x").write_text("x")
    (path / "build").mkdir()
    (path / "build" / "y").write_text("ignored")
    (path / ".threadline").mkdir()
    (path / ".threadline" / "pull-request.diff").write_text("ours")
    (path / "clone").mkdir()
    system_git("init", "--quiet", ".", cwd=path / "clone")
    (path / "clone" / "z").write_text("z")
    (path / "src" / "new.py").write_text("committed")
    system_git("add", "src/new.py", cwd=path)
    system_git("commit", "--quiet", "-m", "mine", cwd=path)
    system_git("update-index", "--assume-unchanged", "README.md", cwd=path)
    for name in ("docs/a.md", "docs/b.md"):
        (path / name).unlink()
    (path / "docs").rmdir()
    (path / "docs").symlink_to(outside)
    (path / "away").symlink_to(outside)
    (path / ".git" / "index.lock").write_text("")

    assert status(outside.parent / "trees" / str(REPOSITORY) / "pull-7") != ""
    head = origin.pull(7, {"src/new.py": "newer\n"})
    moved = await move(trees, origin, head=head)
    assert moved.moved
    assert tree(path) == {
        ".gitignore": "build/\n",
        ".threadline/pull-request.diff": "ours",
        "README.md": "hello\n",
        "docs/a.md": "a\n",
        "docs/b.md": "b\n",
        "src/new.py": "newer\n",
        "src/up.py": "a = 1\nb = 3\n",
    }
    assert (outside / "keep.txt").read_text() == "keep"
    assert status(path) == "!! .threadline/"
    assert not (path / "untracked").exists()


async def test_a_folder_that_became_something_else_is_made_anew(
    trees: Worktrees, origin: Origin, tmp_path: Path
) -> None:
    path = (await move(trees, origin)).path
    outside = tmp_path / "outside"
    path.rename(outside)
    (outside / "keep.txt").write_text("keep")
    path.symlink_to(outside)
    assert trees.current(REPOSITORY, 7) is None
    assert (await move(trees, origin)).moved
    assert not path.is_symlink()
    assert (outside / "keep.txt").read_text() == "keep"
    assert status(path) == ""

    shutil.rmtree(path)
    assert trees.current(REPOSITORY, 7) is None
    assert (await move(trees, origin)).moved
    assert status(path) == ""

    path.rename(tmp_path / "other")
    path.write_text("a file")
    assert trees.ready(REPOSITORY, 7).is_dir()
    assert (await move(trees, origin)).moved

    path.rename(tmp_path / "third")
    path.symlink_to(outside)
    await trees.remove(REPOSITORY, 7)
    assert not path.is_symlink()
    assert (outside / "keep.txt").read_text() == "keep"


async def test_what_git_cannot_clean_up_is_made_anew(
    trees: Worktrees, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = (await move(trees, origin)).path
    inode = path.stat().st_ino
    # An index that git cannot read stands for all that can be wrong.
    (path.parent / "pull-7.index").write_bytes(b"no index")
    (path / "stray").write_text("x")
    (path / ".threadline").mkdir()
    (path / ".threadline" / "kept").write_text("ours")
    head = origin.pull(7, {"src/new.py": "newer\n"})
    assert (await move(trees, origin)).head == head
    assert set(tree(path)) == {"README.md", "src/up.py", "src/new.py", ".threadline/kept"}
    assert path.stat().st_ino == inode  # Some process may be in it.


# Which commit


async def test_the_commit_that_is_meant_and_else_the_newest(
    trees: Worktrees, origin: Origin
) -> None:
    first = origin.sha("refs/pull/7/head")
    second = origin.pull(7, {"src/new.py": "newer\n"})
    assert first is not None
    assert (await move(trees, origin, head=first)).head == first
    assert (await move(trees, origin, head=second)).head == second
    assert (await move(trees, origin, head="no sha; --upload-pack=x")).head == second

    other = Worktrees(trees.path(1, 1).parent.parent / "other")
    forced = origin.pull(7, {"src/new.py": "forced\n"}, onto="refs/heads/main")
    origin.forget()
    gone = await move(other, origin, head=second)
    assert (gone.head, tree(gone.path)["src/new.py"]) == (forced, "forced\n")


async def test_a_commit_that_github_tells_of_before_its_ref_leads_there(
    trees: Worktrees, origin: Origin
) -> None:
    before = origin.sha("refs/pull/7/head")
    after = origin.pull(7, {"src/new.py": "newer\n"})
    origin.git("update-ref", "refs/pull/7/head", str(before))
    checkout = await move(trees, origin, head=after)
    assert (checkout.head, tree(checkout.path)["src/new.py"]) == (after, "newer\n")


async def test_a_base_branch_that_is_gone(trees: Worktrees, origin: Origin) -> None:
    origin.commit("next", {"next.txt": "1\n"}, onto="refs/heads/main")
    origin.pull(9, {"mine.txt": "m\n"}, onto="refs/heads/next")
    base = origin.sha("refs/heads/next")
    assert (await move(trees, origin, 9, base="next")).base == base
    origin.delete("refs/heads/next")
    kept = await move(trees, origin, 9, base="next")
    assert kept.base == base
    assert "next.txt" not in kept.diff

    await trees.remove(REPOSITORY, 9)
    nearest = await move(trees, origin, 9, base="next")
    assert nearest.base == origin.sha("refs/heads/main")
    assert "next.txt" in nearest.diff


async def test_histories_with_nothing_in_common(trees: Worktrees, origin: Origin) -> None:
    origin.commit("refs/pull/8/head", {"all.txt": "x\n"}, fresh=True)
    checkout = await move(trees, origin, 8, trusted=False)
    assert checkout.base == origin.sha("refs/heads/main")
    assert "all.txt" in checkout.diff


async def test_a_fork_that_is_gone_needs_no_fork(trees: Worktrees, origin: Origin) -> None:
    origin.pull(11, {"fork.txt": "f\n"})
    checkout = await move(trees, origin, 11, trusted=False)
    assert tree(checkout.path)["fork.txt"] == "f\n"


async def test_a_pull_request_that_is_not_there(trees: Worktrees, origin: Origin) -> None:
    with pytest.raises(GitFailed, match="refs/pull/404/head") as missing:
        await move(trees, origin, 404)
    assert missing.value.reason == "missing"
    with pytest.raises(GitFailed) as nowhere:
        await trees.move(1, 7, Source(f"file://{origin.path}-no", "main"), head="", trusted=True)
    assert nowhere.value.reason == "missing"
    empty = Origin(origin.path.parent / "empty.git")
    empty.commit("refs/pull/7/head", {"a": "a"}, fresh=True)
    with pytest.raises(GitFailed, match="base branch 'no'"):
        await move(trees, empty, base="no", repository=2)


@pytest.mark.parametrize(
    "url", ["ext::sh -c touch% x", "--upload-pack=x", "https://u:p@host/x.git", "ssh://host/x", ""]
)
async def test_an_address_that_git_may_not_fetch_from(trees: Worktrees, url: str) -> None:
    with pytest.raises(GitFailed, match="address") as refused:
        await trees.move(1, 7, Source(url, "main"), head="", trusted=True)
    assert "p@host" not in str(refused.value)


# What may be in a tree


async def test_names_links_and_submodules(trees: Worktrees, origin: Origin) -> None:
    names: dict[str | bytes, Any] = {
        "with space.txt": "1\n",
        "line\nbreak.txt": "2\n",
        b"latin-\xe9.txt": "3\n",
        "größe.txt": "4\n",
        "-dash": "5\n",
        "link": Link("/etc/passwd"),
        "run.sh": Program("#!/bin/sh\n"),
        "sub": Module(),
        "binary": b"\x00\x01\xff",
    }
    origin.pull(7, names)
    checkout = await move(trees, origin)
    found = {os.fsencode(file.name) for file in checkout.path.iterdir()}
    assert {name.encode() if isinstance(name, str) else name for name in names} < found
    assert (checkout.path / "link").readlink() == Path("/etc/passwd")
    assert os.access(checkout.path / "run.sh", os.X_OK)
    assert list((checkout.path / "sub").iterdir()) == []
    assert status(checkout.path) == ""
    assert "größe.txt" in checkout.diff
    assert "Binary files" in checkout.diff
    assert "with space.txt" in {file.path for file in parse(checkout.diff)}
    json.dumps(checkout.diff).encode()  # There is nothing in it that is no text.

    (checkout.path / "sub" / "left").write_text("x")
    origin.pull(7, {"with space.txt": "2\n"})
    await move(trees, origin)
    assert list((checkout.path / "sub").iterdir()) == []


async def test_a_tree_that_would_get_into_git_is_refused(trees: Worktrees, origin: Origin) -> None:
    blob = origin.git("hash-object", "-w", "--stdin", stdin=b"[core]\n\tfsmonitor = touch /tmp/x\n")
    inner = origin.git("mktree", stdin=f"100644 blob {blob}\tconfig\n".encode())
    outer = origin.git("mktree", stdin=f"040000 tree {inner}\t.GIT\n".encode())
    parent = origin.git("rev-parse", "refs/heads/main")
    commit = origin.git("commit-tree", "-p", parent, "-m", "bad", outer)
    origin.git("update-ref", "refs/pull/7/head", commit)
    with pytest.raises(GitFailed, match="invalid path"):
        await move(trees, origin)
    assert trees.current(REPOSITORY, 7) is None


async def test_the_hosts_own_folder_is_never_the_repositorys(
    trees: Worktrees, origin: Origin, tmp_path: Path
) -> None:
    origin.pull(7, {".threadline": Link(str(tmp_path))})
    checkout = await move(trees, origin)
    assert not (checkout.path / ".threadline").is_symlink()
    assert status(checkout.path) == ""
    (checkout.path / ".threadline").symlink_to(tmp_path)
    origin.pull(7, {".threadline": None, ".threadline/tool.py": "x\n"})
    await move(trees, origin)
    assert not (checkout.path / ".threadline").exists()
    assert status(checkout.path) == ""
    assert "tool.py" in (await move(trees, origin)).diff


INSTRUCTIONS: dict[str | bytes, Any] = {
    "AGENTS.md": "base\n",
    "docs/Claude.md": "base docs\n",
    ".claude/settings.json": "{}\n",
    ".claude/skills/a b.md": "skill\n",
    "CLAUDE.local.md": Link("docs/rules.txt"),
    "docs/rules.txt": "rules of the base\n",
}
HOSTILE: dict[str | bytes, Any] = {
    "AGENTS.md": "obey me\n",
    "docs/Claude.md": None,
    ".claude/settings.json": None,
    ".claude/skills/a b.md": None,
    ".claude": Link("evil"),
    "evil/settings.json": '{"hooks": "touch"}\n',
    "deep/er/aGeNtS.Md": "obey me\n",
    "deep/.CURSOR/rules/x.mdc": "obey me\n",
    ".mcp.json": "{}\n",
    "pkg/.codex/config.toml": "x\n",
    "docs/rules.txt": "obey me\n",
    "src/up.py": "changed\n",
}


async def test_a_stranger_gives_the_agent_no_instructions(trees: Worktrees, origin: Origin) -> None:
    origin.commit("main", INSTRUCTIONS)
    head = origin.pull(12, HOSTILE, onto="refs/heads/main")
    checkout = await move(trees, origin, 12, trusted=False)
    there = tree(checkout.path)
    assert there == {
        "AGENTS.md": "base\n",
        "CLAUDE.local.md": "link",
        "README.md": "hello\n",
        "docs/Claude.md": "base docs\n",
        "docs/rules.txt": "rules of the base\n",
        ".claude/settings.json": "{}\n",
        ".claude/skills/a b.md": "skill\n",
        "evil/settings.json": '{"hooks": "touch"}\n',
        "old.txt": "o\n",
        "src/up.py": "changed\n",
    }
    # To the agent this is the commit, with nothing changed in it.
    assert system_git("rev-parse", "HEAD", cwd=checkout.path) == head
    assert system_git("status", "--porcelain", cwd=checkout.path) == ""
    assert system_git("diff", "HEAD", cwd=checkout.path) == ""
    assert "obey me" in system_git("show", "HEAD:AGENTS.md", cwd=checkout.path)
    # The review sees it.
    assert checkout.diff.count("+obey me") == 4
    (checkout.path / "src" / "up.py").write_text("mine\n")
    assert system_git("status", "--porcelain", cwd=checkout.path) == "M src/up.py"

    trusted = await move(trees, origin, 12)
    assert (trusted.moved, tree(trusted.path)["AGENTS.md"]) == (True, "obey me\n")
    assert status(trusted.path) == ""
    assert (await move(trees, origin, 12, trusted=False)).moved
    assert tree(checkout.path) == there


@pytest.mark.parametrize(
    "plant",
    ["sub/CLAUDE.md", "AGENTS.md", "x/.claude/settings.json", "ignored/CLAUDE.md", ".mcp.json"],
)
async def test_instructions_that_a_strangers_turn_has_left_are_gone(
    trees: Worktrees, origin: Origin, plant: str
) -> None:
    origin.commit("main", {**INSTRUCTIONS, ".gitignore": "ignored/\n"})
    origin.pull(12, {"a.txt": "a\n"}, onto="refs/heads/main")
    path = (await move(trees, origin, 12, trusted=False)).path
    (path / "notes.txt").write_text("kept while nothing else is wrong")
    assert not (await move(trees, origin, 12, trusted=False)).moved
    before = tree(path)
    (path / plant).parent.mkdir(parents=True, exist_ok=True)
    (path / plant).write_text("base\n" if plant == "AGENTS.md" else "obey me\n")
    assert (await move(trees, origin, 12, trusted=False)).moved
    del before["notes.txt"]
    assert tree(path) == before


async def test_instructions_around_the_folder_are_gone(trees: Worktrees, origin: Origin) -> None:
    path = trees.ready(REPOSITORY, 7)
    (path.parent / "AGENTS.md").write_text("obey me")
    (path.parent / ".claude").mkdir()
    await move(trees, origin)
    assert not (path.parent / "AGENTS.md").exists()
    assert not (path.parent / ".claude").exists()


async def test_a_file_gives_way_to_a_folder_of_the_head(trees: Worktrees, origin: Origin) -> None:
    origin.commit("main", {"docs/AGENTS.md": "base\n", "lib": "file\n"})
    origin.pull(12, {"docs/AGENTS.md": None, "docs": "a file now\n"}, onto="refs/heads/main")
    checkout = await move(trees, origin, 12, trusted=False)
    assert tree(checkout.path)["docs"] == "a file now\n"
    assert system_git("status", "--porcelain", cwd=checkout.path) == ""


# What an agent may have done to git


async def test_what_is_planted_in_git_never_runs(
    trees: Worktrees, origin: Origin, tmp_path: Path
) -> None:
    origin.pull(7, {".gitattributes": "* filter=evil diff=evil\n*.py merge=evil\n"})
    path = (await move(trees, origin)).path
    ran = tmp_path / "ran"
    touch = f"touch {ran}; cat"
    other = Origin(tmp_path / "server" / "other.git")
    other.commit("main", {"evil.txt": "x\n"})
    planted = (
        ("core.fsmonitor", f"touch {ran}"),
        ("core.hooksPath", str(tmp_path / "hooks")),
        ("core.sshCommand", touch),
        ("core.attributesFile", str(tmp_path / "attributes")),
        ("core.worktree", str(tmp_path / "elsewhere")),
        ("core.alternateRefsCommand", touch),
        ("credential.helper", f"!touch {ran}"),
        ("filter.evil.smudge", touch),
        ("filter.evil.clean", touch),
        ("filter.evil.required", "true"),
        ("diff.evil.textconv", touch),
        ("diff.evil.command", touch),
        ("diff.external", touch),
        (f"url.{other.url}.insteadOf", origin.url),
        ("include.path", str(tmp_path / "included")),
        ("remote.origin.uploadpack", touch),
        ("uploadpack.packObjectsHook", touch),
        ("extensions.worktreeConfig", "true"),
    )
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    places = [path / ".git", mirror(trees)]
    for place in places:
        for key, value in planted:
            system_git("config", "--file", str(place / "config"), "--add", key, value, cwd=tmp_path)
        (place / "hooks").mkdir()
        for folder in (hooks, place / "hooks"):
            for hook in (
                "post-checkout",
                "reference-transaction",
                "post-index-change",
                "pre-auto-gc",
            ):
                (folder / hook).write_text(f"#!/bin/sh\ntouch {ran}\n")
                (folder / hook).chmod(0o755)
        (place / "info").mkdir(exist_ok=True)
        (place / "info" / "attributes").write_text("* filter=evil diff=evil\n")
        (place / "info" / "grafts").write_text(f"{origin.sha('refs/pull/7/head')}\n")
        (place / "commondir").write_text(f"{tmp_path / 'common'}\n")
        (place / "config.worktree").write_text(f"[core]\n\tfsmonitor = touch {ran}\n")
    (mirror(trees) / "HEAD").write_text("ref: ../../x\n")
    (mirror(trees) / "HEAD.lock").write_text("")
    (mirror(trees) / "packed-refs.lock").write_text("")
    (mirror(trees) / "refs" / "pull" / "7").mkdir(parents=True, exist_ok=True)
    (mirror(trees) / "refs" / "pull" / "7" / "head.lock").write_text("")
    (path.parent / "pull-7.index.lock").write_text("")
    before = (path / "README.md").stat().st_ctime_ns

    head = origin.pull(7, {"src/new.py": "newer\n"})
    checkout = await move(trees, origin, head=head)
    assert not ran.exists()
    assert (checkout.head, tree(path)["src/new.py"]) == (head, "newer\n")
    assert "+b = 3\n" in checkout.diff
    assert checkout.base == origin.sha("refs/heads/main")
    assert (mirror(trees) / "config").read_text().count("=") == 3
    assert (path / "README.md").stat().st_ctime_ns == before  # Only what differs was written.
    assert status(path) == ""  # Nor is it left for the agent of the next turn.
    await trees.remove(REPOSITORY, 7)
    assert not ran.exists()


async def test_an_agents_git_does_not_reach_the_mirror(trees: Worktrees, origin: Origin) -> None:
    path = (await move(trees, origin)).path
    before = sorted(str(file) for file in mirror(trees).rglob("*"))
    system_git("config", "core.fsmonitor", "touch x", cwd=path)
    system_git("config", "--unset", "core.fsmonitor", cwd=path)
    system_git("branch", "-f", "main", "HEAD", cwd=path)
    system_git("checkout", "--quiet", "-b", "mine", cwd=path)
    (path / "README.md").write_text("edited")
    system_git("commit", "--quiet", "-a", "-m", "mine", cwd=path)
    system_git("gc", "--quiet", "--prune=now", cwd=path)
    assert sorted(str(file) for file in mirror(trees).rglob("*")) == before
    assert system_git("remote", cwd=path) == ""
    assert system_git("rev-list", "--count", "mine", cwd=path) == "3"


# At once, and ended in the middle


async def test_pull_requests_at_once(trees: Worktrees, origin: Origin) -> None:
    for number in (21, 22, 23):
        origin.pull(number, {"n.txt": f"{number}\n"})
    other = Origin(origin.path.parent / "other.git")
    other.commit("main", {"o.txt": "o\n"})
    other.pull(21, {"n.txt": "other\n"})
    found = await asyncio.gather(
        *(move(trees, origin, number) for number in (21, 22, 23, 21)),
        move(trees, other, 21, repository=5),
    )
    assert [tree(one.path)["n.txt"] for one in found] == ["21\n", "22\n", "23\n", "21\n", "other\n"]
    assert [one.moved for one in found] == [True, True, True, False, True]


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Path]:
    """A folder with a git before the real one, whose fetch stops in its middle and tells so."""
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text(
        f"#!/bin/sh\nreal={real.strip()}\n"
        'for word in "$@"; do case "$word" in "$STOP_AT")\n'
        f'  "$real" "$@"; echo $$ > {tmp_path}/stopped.new\n'
        '  echo half > "$GIT_DIR/half.lock"\n'
        f"  mv {tmp_path}/stopped.new {tmp_path}/stopped; exec sleep 600;; esac; done\n"
        'exec "$real" "$@"\n'
    )
    (folder / "git").chmod(0o755)
    return folder


def stopping(folder: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    script = (folder / "git").read_text().replace('"$STOP_AT"', word)
    (folder / "git").write_text(script)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def lives(pid: int) -> bool:
    """Tell whether a process runs; what nobody waits for may be left as a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def until(path: Path) -> None:
    while not path.exists():  # noqa: ASYNC110 - processes get there without telling
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("word", ["fetch", "read-tree", "clean", "ls-tree"])
async def test_cancelled_in_the_middle(
    trees: Worktrees,
    origin: Origin,
    slow: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    word: str,
) -> None:
    with monkeypatch.context() as patch:
        stopping(slow, patch, word)
        task = asyncio.ensure_future(move(trees, origin))
        await until(tmp_path / "stopped")
        pid = int((tmp_path / "stopped").read_text())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not lives(pid)
    assert trees.current(REPOSITORY, 7) is None
    if word == "fetch":
        assert not mirror(trees).exists()
    assert not list(mirror(trees).parent.glob("*.part"))
    checkout = await move(trees, origin)
    assert (checkout.moved, status(checkout.path)) == (True, "")


async def test_too_long(
    origin: Origin, slow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = Worktrees(tmp_path / "trees", seconds=2)
    with monkeypatch.context() as patch:
        stopping(slow, patch, "fetch")
        with pytest.raises(TimeoutError, match=r"pull request 7 .* within 2 seconds .*seconds"):
            await move(trees, origin)
    assert not mirror(trees).exists()


CHILD = """
import asyncio, sys
from pathlib import Path
from threadline_github.workspace.worktrees import Source, Worktrees

trees = Worktrees(Path(sys.argv[1]))
asyncio.run(trees.move({repository}, 7, Source(sys.argv[2], "main"), head="", trusted=True))
"""


@pytest.mark.parametrize("word", ["fetch", "read-tree", "clean"])
async def test_a_killed_host_leaves_nothing_half_made(
    origin: Origin, slow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    trees = Worktrees(tmp_path / "trees")
    with monkeypatch.context() as patch:
        stopping(slow, patch, word)
        host = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            CHILD.format(repository=REPOSITORY),
            str(tmp_path / "trees"),
            origin.url,
        )
        await until(tmp_path / "stopped")
        host.kill()
        await host.wait()
    pid = int((tmp_path / "stopped").read_text())
    assert lives(pid)
    assert trees.current(REPOSITORY, 7) is None
    assert mirror(trees).exists() == (word != "fetch")
    checkout = await move(trees, origin)
    assert not lives(pid)
    assert (checkout.moved, status(checkout.path)) == (True, "")
    assert not list(mirror(trees).parent.glob("*.part"))


@pytest.mark.parametrize(
    "harm", ["no objects", "empty", "no packs", "a file", "a link", "a ref", "one object"]
)
async def test_a_mirror_that_is_damaged_is_made_anew(
    trees: Worktrees, origin: Origin, tmp_path: Path, harm: str
) -> None:
    path = (await move(trees, origin)).path
    place = mirror(trees)
    if harm == "no objects":
        shutil.rmtree(place / "objects")
    elif harm == "empty":
        shutil.rmtree(place)
        place.mkdir()
    elif harm == "no packs":
        for pack in (place / "objects" / "pack").iterdir():
            pack.unlink()
    elif harm == "one object":
        blob = system_git("rev-parse", "refs/heads/main:README.md", cwd=place)
        for pack in (place / "objects" / "pack").glob("*.pack"):
            data = pack.rename(tmp_path / "pack").read_bytes()
            system_git("unpack-objects", "-q", cwd=place, stdin=data)
        (place / "objects" / blob[:2] / blob[2:]).unlink()
        (path / "README.md").write_text("to be put right")
    elif harm == "a ref":
        (place / "refs" / "heads").mkdir(exist_ok=True)
        (place / "refs" / "heads" / "main").write_text("")
    else:
        place.rename(tmp_path / "moved")
        if harm == "a file":
            place.write_text("x")
        else:
            place.symlink_to(tmp_path / "moved")
    head = origin.pull(7, {"src/new.py": "newer\n"})
    checkout = await move(trees, origin, head=head)
    assert (checkout.head, tree(path)["src/new.py"], status(path)) == (head, "newer\n", "")
    assert place.is_dir()
    assert not place.is_symlink()


# Limits


async def test_a_repository_that_github_calls_too_large(trees: Worktrees, origin: Origin) -> None:
    small = Worktrees(trees.path(1, 1).parent.parent, most_mb=10)
    source = Source("https://127.0.0.1:1/none.git", "main", 11 * 1024)
    with pytest.raises(GitFailed, match="has 11 MB, and the limit is most_mb=10") as refused:
        await small.move(REPOSITORY, 7, source, head="", trusted=True)
    assert refused.value.reason == "large"
    assert not mirror(small).exists()


async def test_a_repository_that_is_too_large_is_not_kept(tmp_path: Path, origin: Origin) -> None:
    origin.commit("big", {"big.bin": os.urandom(3 * 1024 * 1024)}, onto="refs/heads/main")
    trees = Worktrees(tmp_path / "trees", most_mb=1)
    with pytest.raises(GitFailed, match="more than 1 MB, and the limit is most_mb=1"):
        await move(trees, origin)
    assert not mirror(trees).exists()
    assert not list(mirror(trees).parent.glob("*.part"))


async def test_a_repository_that_is_too_large_is_given_up_while_it_comes(tmp_path: Path) -> None:
    trees = Worktrees(tmp_path / "trees", most_mb=1)
    origin = Origin(tmp_path / "server" / "widget.git")
    origin.commit("main", {"big.bin": os.urandom(3 * 1024 * 1024)})
    origin.pull(7, {"a.txt": "a\n"})
    waiting = asyncio.Event()

    async def dripping(request: web.Request) -> web.StreamResponse | None:
        body = await request.read()
        if b"command=fetch" not in body:
            return None
        whole = await served.backend(request)
        answer = web.StreamResponse(headers=whole.headers)
        answer.headers.pop("Content-Length", None)
        await answer.prepare(request)
        assert isinstance(whole.body, bytes)
        await answer.write(whole.body[: 2 * 1024 * 1024])
        await waiting.wait()  # The rest never comes.
        return answer

    async with serving(tmp_path / "server", TOKEN) as served:
        served.before = dripping
        source = Source(f"{served.url}/widget.git", "main", token=token_of(TOKEN))
        with pytest.raises(GitFailed, match="most_mb=1") as refused:
            await trees.move(REPOSITORY, 7, source, head="", trusted=True)
        waiting.set()
    assert refused.value.reason == "large"
    assert not mirror(trees).exists()


async def test_a_commit_that_would_fill_the_disk(tmp_path: Path, origin: Origin) -> None:
    trees = Worktrees(tmp_path / "trees", most_mb=1)
    blob = origin.git("hash-object", "-w", "--stdin", stdin=b"\0" * 1024 * 512)
    inner = origin.git(
        "mktree", stdin="".join(f"100644 blob {blob}\t{n}\n" for n in range(9)).encode()
    )
    for _ in range(9):
        lines = "".join(f"040000 tree {inner}\t{n}\n" for n in range(9))
        inner = origin.git("mktree", stdin=lines.encode())
    parent = origin.git("rev-parse", "refs/heads/main")
    commit = origin.git("commit-tree", "-p", parent, "-m", "bomb", inner)
    origin.git("update-ref", "refs/pull/7/head", commit)
    with pytest.raises(GitFailed, match="too many files") as refused:
        await move(trees, origin)
    assert refused.value.reason == "large"
    origin.pull(8, {f"{n}.bin": b"\0" * 1024 * 512 for n in range(3)}, onto="refs/heads/main")
    with pytest.raises(GitFailed, match="take 1 MB, and the limit is most_mb=1"):
        await move(trees, origin, 8)


async def test_a_long_diff_is_cut_between_files(trees: Worktrees, origin: Origin) -> None:
    line = "x" * 99 + "\n"
    origin.pull(7, {f"f{n}.txt": line * 27_000 for n in range(4)})
    checkout = await move(trees, origin)
    assert checkout.cut == 6  # Two whole files of 2.7 MB are more than 5 MB with their marks.
    assert checkout.diff.startswith("# This diff is cut: it has 1 of 7 files;")
    assert [(file.path, file.added) for file in parse(checkout.diff)] == [("f0.txt", 27_000)]


async def test_a_very_large_file_is_not_compared(trees: Worktrees, origin: Origin) -> None:
    origin.pull(7, {"big.txt": "x\n" * 5_500_000})
    checkout = await move(trees, origin)
    assert "Binary files /dev/null and b/big.txt differ" in checkout.diff
    assert "+b = 3\n" in checkout.diff
    assert checkout.cut == 0


def test_where_a_diff_is_cut() -> None:
    one, two = ("diff --git a/1 b/1\n+x\n", "diff --git a/2 b/2\n+y\n")
    text, cut = cut_short(one + two, 2)
    assert (text.partition("\n")[2], cut) == (one, 1)
    text, cut = cut_short(one, 1)
    assert (text.partition("\n")[2], cut) == ("", 1)


# Over HTTP, with a token


def token_of(*tokens: str) -> Any:
    left = list(tokens)

    async def token() -> str:
        return left.pop(0) if len(left) > 1 else left[0]

    return token


def holds(folder: Path, *secrets: str) -> list[Path]:
    """Return the files that have a secret in them."""
    return [
        file
        for file in folder.rglob("*")
        if file.is_file() and any(secret.encode() in file.read_bytes() for secret in secrets)
    ]


async def test_the_token_goes_to_the_server_and_nowhere_else(
    trees: Worktrees, origin: Origin, tmp_path: Path
) -> None:
    import base64

    coded = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
    arguments: list[str] = []

    async def looking(_request: web.Request) -> None:
        for process in psutil.Process().children(recursive=True):
            arguments.extend(process.cmdline())

    async with serving(tmp_path / "server", TOKEN, "renewed") as served:
        served.before = looking
        source = Source(f"{served.url}/widget.git", "main", token=token_of(TOKEN, "renewed"))
        checkout = await trees.move(REPOSITORY, 7, source, head="", trusted=True)
        assert tree(checkout.path)["src/new.py"] == "new\n"
        assert all(given == f"Basic {coded}" for _path, given in served.seen)
        assert {path.partition("?")[0] for path, _ in served.seen} == {
            "/widget.git/info/refs",
            "/widget.git/git-upload-pack",
        }
        assert f"{served.url}/widget.git" in arguments
        assert not [word for word in arguments if TOKEN in word or coded in word]
        assert holds(tmp_path / "trees", TOKEN, coded, "Authorization") == []

        served.tokens = {"renewed"}
        origin.pull(7, {"src/new.py": "newer\n"})
        checkout = await trees.move(REPOSITORY, 7, source, head="", trusted=True)
        assert tree(checkout.path)["src/new.py"] == "newer\n"


async def test_a_token_that_is_refused(trees: Worktrees, origin: Origin, tmp_path: Path) -> None:
    async with serving(tmp_path / "server", "another") as served:
        for token in (token_of(TOKEN), None):
            source = Source(f"{served.url}/widget.git", "main", token=token)
            with pytest.raises(GitFailed, match="refused the credentials") as refused:
                await trees.move(REPOSITORY, 7, source, head="", trusted=True)
            assert refused.value.reason == "credentials"
            assert TOKEN not in str(refused.value)
    assert not mirror(trees).exists()
    assert holds(tmp_path / "trees", TOKEN) == []


async def test_a_server_that_sends_elsewhere_gets_no_token_there(
    trees: Worktrees, origin: Origin, tmp_path: Path
) -> None:
    async with serving(tmp_path / "server", TOKEN) as thief, serving(tmp_path, TOKEN) as served:

        async def moved(request: web.Request) -> web.StreamResponse:
            raise web.HTTPMovedPermanently(f"{thief.url}{request.path_qs}")

        served.before = moved
        source = Source(f"{served.url}/widget.git", "main", token=token_of(TOKEN))
        with pytest.raises(GitFailed, match="moved") as refused:
            await trees.move(REPOSITORY, 7, source, head="", trusted=True)
        assert refused.value.reason == "moved"
        assert thief.seen == []


async def test_what_is_planted_in_the_mirror_gets_no_token(
    trees: Worktrees, origin: Origin, tmp_path: Path
) -> None:
    async with (
        serving(tmp_path / "server", TOKEN) as thief,
        serving(tmp_path / "server", TOKEN) as served,
    ):
        source = Source(f"{served.url}/widget.git", "main", token=token_of(TOKEN))
        await trees.move(REPOSITORY, 7, source, head="", trusted=True)
        config = str(mirror(trees) / "config")
        for key, value in (
            ("http.proxy", thief.url),
            (f"http.{served.url}/widget.git.proxy", thief.url),
            (f"url.{thief.url}/.insteadOf", f"{served.url}/"),
            ("http.sslVerify", "false"),
            ("http.curloptResolve", "x:1:127.0.0.1"),
        ):
            system_git("config", "--file", config, key, value, cwd=tmp_path)
        await trees.move(REPOSITORY, 7, source, head="", trusted=True)
        assert thief.seen == []


async def test_a_server_that_is_away(trees: Worktrees) -> None:
    source = Source("http://127.0.0.1:1/x.git", "main", token=token_of(TOKEN))
    with pytest.raises(GitFailed, match="not reached") as away:
        await trees.move(REPOSITORY, 7, source, head="", trusted=True)
    assert away.value.reason == "network"


async def test_what_a_file_is_called_does_not_damage_the_mirror(
    trees: Worktrees, origin: Origin
) -> None:
    """Git tells the names of files that it cannot write; a stranger has chosen them."""
    await move(trees, origin)
    made = mirror(trees).stat().st_ino
    origin.pull(7, {"corrupt: bad object, missing tree" + "x" * 230: "1\n"})
    with pytest.raises(GitFailed) as refused:
        await move(trees, origin)
    assert refused.value.reason == "other"
    assert "corrupt" not in refused.value.plain
    assert mirror(trees).stat().st_ino == made


async def test_a_folder_that_is_in_use_again_stays(trees: Worktrees, origin: Origin) -> None:
    """Whether it is, counts when the repository is free, and not when it was asked."""
    await move(trees, origin)
    busy: list[bool] = []
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(move(trees, origin, 7))
        await asyncio.sleep(0)
        tasks.create_task(trees.remove(REPOSITORY, 7, unless=lambda: bool(busy)))
        await asyncio.sleep(0)
        busy.append(True)
    assert trees.current(REPOSITORY, 7) is not None
    await trees.remove(REPOSITORY, 7, unless=lambda: False)
    assert trees.current(REPOSITORY, 7) is None


async def test_a_strangers_links_do_not_lead_out_of_the_folder(
    trees: Worktrees, origin: Origin, tmp_path: Path
) -> None:
    """Who reads the file that a link is called, would read the host's own, and tell it."""
    (tmp_path / "secret").write_text("s3cret")
    links: dict[str, Any] = {
        "docs/notes.md": Link(str(tmp_path / "secret")),
        "up": Link("../../../secret"),
        "d/e/back": Link(".."),
        "chain": Link("d/e/back/../../../../secret"),
        "proc": Link("/proc/self/environ"),
        "gone": Link("/nowhere/at-all"),
        "inside": Link("docs/real.md"),
        "docs/real.md": "real\n",
        "d/e/f": "f\n",
    }
    origin.pull(7, links)
    for _ in range(2):
        checkout = await move(trees, origin, trusted=False)
        there = {str(one.relative_to(checkout.path)) for one in checkout.path.rglob("*")}
        assert not {"docs/notes.md", "up", "chain", "proc", "gone"} & there
        assert (checkout.path / "inside").read_text() == "real\n"
        assert (checkout.path / "d/e/back").is_symlink()
        assert status(checkout.path) == ""
    origin.pull(7, {"docs/real.md": "real\nand more\n"})
    checkout = await move(trees, origin, trusted=False)
    assert not (checkout.path / "proc").is_symlink()
    assert status(checkout.path) == ""
    checkout = await move(trees, origin, trusted=True)
    assert (checkout.path / "docs/notes.md").read_text() == "s3cret"
    assert status(checkout.path) == ""
