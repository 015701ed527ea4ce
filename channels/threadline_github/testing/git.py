"""A real bare git repository behind a repository of the fake; git is called on this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from threadline_github.testing.diffs import Files
from threadline_github.testing.model import Account, Pull, Repository

__all__ = ["ENVIRON", "begin", "change", "copy", "diff_of", "remove"]

ENVIRON = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


def begin(folder: Path, branch: str, moment: int) -> str:
    """Make a bare repository with one commit; returns its id."""
    folder.mkdir(parents=True, exist_ok=True)
    _git(folder, "init", "--quiet", "--bare", f"--initial-branch={branch}")
    for name in ("uploadpack.allowAnySHA1InWant", "uploadpack.allowFilter"):
        _git(folder, "config", name, "true")
    files: Files = {"README.md": (None, "# Widget\n")}
    return change(folder, f"refs/heads/{branch}", files, "Begin", None, moment)


def change(
    folder: Path,
    ref: str,
    files: Files,
    message: str,
    parent: str | None,
    moment: int,
    author: Account | None = None,
) -> str:
    """Commit files, as they are afterwards, upon a parent, and let a ref be there."""
    name = author.login if author is not None else "octo-fixture"
    words = message.encode()
    stream = [
        f"commit {ref}\ncommitter {name} <{name}@users.noreply.github.com> {moment} +0000\n",
        f"data {len(words)}\n{message}\n",
    ]
    if parent is not None:
        stream.append(f"from {parent}\n")
    for path, (_, after) in sorted(files.items()):
        if after is None:
            stream.append(f"D {path}\n")
        else:
            stream.append(f"M 100644 inline {path}\ndata {len(after.encode())}\n{after}\n")
    _git(folder, "fast-import", "--quiet", "--force", stdin="".join(stream))
    return _git(folder, "rev-parse", ref).strip()


def copy(folder: Path, ref: str, sha: str) -> None:
    """Let a ref be at a commit."""
    _git(folder, "update-ref", ref, sha)


def remove(folder: Path, ref: str) -> None:
    """Remove a ref."""
    _git(folder, "update-ref", "-d", ref)


def diff_of(repository: Repository, pull: Pull, head: str) -> str:
    """Return the diff of a commit against where it left the base."""
    assert repository.bare is not None
    return _git(repository.bare, "diff", "--no-ext-diff", f"{pull.base_sha}...{head}")


def _git(folder: Path, *words: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["git", *words],
        cwd=folder,
        env={**os.environ, **ENVIRON},
        input=stdin.encode(),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"git {words[0]} failed: {done.stderr.decode('utf-8', 'replace')}")
    return done.stdout.decode("utf-8", "replace")
