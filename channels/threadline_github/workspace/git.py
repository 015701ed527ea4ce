"""Calls git for the host: no configuration of others, no hooks, no questions, no secret on disk.

A secret goes to git in its environment, as configuration that holds for one call.
https://git-scm.com/docs/git-config#Documentation/git-config.txt-GITCONFIGCOUNT
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from threadline.agent.process import Completed, run
from threadline.agent.started import Started
from threadline.errors import ThreadlineError
from threadline.ids import new_id

__all__ = ["OLDEST", "GitFailed", "Reason", "call", "git", "header", "settings"]

OLDEST = (2, 31)
"""The first version that takes configuration by environment."""

Reason = Literal["credentials", "missing", "moved", "network", "damaged", "large", "other"]

_LIMIT = 64 * 1024 * 1024
_MOST_SAID = 300  # characters
_FIXED = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.commitGraph", "false"),
    ("core.untrackedCache", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.askPass", ""),
    ("core.quotePath", "false"),
    ("core.autocrlf", "false"),
    ("core.symlinks", "true"),
    ("core.protectHFS", "true"),
    ("core.protectNTFS", "true"),
    ("core.sparseCheckout", "false"),
    ("credential.helper", ""),
    ("http.followRedirects", "false"),
    ("http.sslVerify", "true"),
    ("http.extraHeader", ""),
    ("http.lowSpeedLimit", "1000"),
    ("http.lowSpeedTime", "60"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("protocol.version", "2"),
)
_ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "LANGUAGE": "",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    "GIT_ALLOW_PROTOCOL": "file:git:http:https",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_OPTIONAL_LOCKS": "0",
}
# The way out of the network, as the host's own HTTP client takes it.
_NETWORK = (
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GIT_SSL_CAINFO",
)
# A pipe ends git as soon as the limit is passed; its code comes by the other output.
_PIPE = '{ git "$@"; echo "git-exit $?" >&2; } | head -c "$MOST"'
_EXIT = re.compile(rb"git-exit (\d+)\s*\Z")
_SIGPIPE = 141
_USERINFO = re.compile(r"://[^/@\s]+@")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_REASONS: tuple[tuple[Reason, re.Pattern[str]], ...] = (
    (
        "credentials",
        re.compile(
            r"could not read (Username|Password)|Authentication failed|error: 40[13]\b"
            r"|terminal prompts disabled|Permission .*denied to"
        ),
    ),
    ("moved", re.compile(r"update url base from redirection|error: 30\d\b")),
    (
        "missing",
        re.compile(
            r"couldn't find remote ref|repository '.*' (not found|does not exist)|error: 404\b"
            r"|does not appear to be a git repository|not our ref|no such remote ref"
        ),
    ),
    (
        "network",
        re.compile(
            r"Could not resolve|[Cc]onnection (refused|reset|timed out)|Failed to connect"
            r"|Couldn't connect|unable to connect|early EOF|unexpected disconnect|hung up"
            r"|Operation too slow|error: 5\d\d\b|error: 429\b|SSL|TLS|RPC failed"
        ),
    ),
    (
        "damaged",
        re.compile(
            r"[Nn]ot a git repository|corrupt|bad object|is empty|missing (blob|tree|commit|object)"
            r"|unable to (read|find|load)|could not read|bad (signature|ref|tree|index)"
            r"|packfile .* (cannot|is|index)|invalid sha1 pointer|reference broken"
            r"|not a valid (object|SHA|commit)|unable to resolve reference"
            r"|did not receive expected|did not send all necessary|Could not parse object"
            r"|failed to (unpack|read)|invalid object|inflate|hash mismatch|broken"
        ),
    ),
)
# Of a file, whose name may hold any words.
_OF_FILES = re.compile(
    r"unable to (create|write|unlink|symlink|stat)|cannot (create|stat)|invalid path"
)
_SENTENCES: dict[Reason, str] = {
    "credentials": (
        "The server refused the credentials: the token is wrong, has expired, or may not read the "
        "code of this repository."
    ),
    "moved": "The repository has moved to another address.",
    "missing": "What was asked for is not there, or the token may not see it.",
    "network": "The server was not reached, or the connection broke.",
    "damaged": "The local copy of the repository is damaged.",
}


class GitFailed(ThreadlineError):
    """A call of git failed; the message holds no secret.

    ``plain`` is without git's own words, in which names stand that people outside have chosen.
    """

    code = "git_failed"
    status = 502

    def __init__(self, message: str, reason: Reason = "other", *, plain: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.plain = message if plain is None else plain


async def git(
    *words: str,
    cwd: Path,
    seconds: float,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    secrets: Sequence[str] = (),
) -> str:
    """Call git and return what it prints; bytes that are not UTF-8 are replaced.

    Where ``env`` names no ``GIT_DIR``, the repository around ``cwd`` is used, with its own
    configuration: never call it so in a folder in which an agent has worked.

    Raises GitFailed, and TimeoutError after so many seconds.
    """
    done = await call(*words, cwd=cwd, seconds=seconds, env=env, stdin=stdin, secrets=secrets)
    return done.text


async def call(
    *words: str,
    cwd: Path,
    seconds: float,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    more: Iterable[tuple[str, str]] = (),
    secrets: Sequence[str] = (),
    most: int | None = None,
    allowed: Sequence[int] = (0,),
) -> Completed:
    """Call git in a process group of its own, and leave nothing of it behind.

    ``more`` is configuration for this call, ``secrets`` is what no error may show, ``most`` is a
    number of bytes after which git is ended, and ``allowed`` are the codes that are no failure.

    Raises GitFailed, and TimeoutError after so many seconds.
    """
    told = {**_ENVIRONMENT, **_network(), **settings((*_FIXED, *more)), **(env or {})}
    if most is None:
        command = ["git", *words]
    else:
        command = ["sh", "-c", _PIPE, "sh", *words]
        told["MOST"] = str(most + 1)
    try:
        done = await run(
            command,
            started=Started(new_id("git")),
            cwd=cwd,
            stdin=stdin,
            timeout=seconds,
            env=told,
            limit=_LIMIT + (most or 0),
        )
    except TimeoutError:
        raise TimeoutError(f"git {_verb(words)} did not end within {seconds:g} seconds.") from None
    except FileNotFoundError:
        what = "git is not installed" if cwd.is_dir() else f"There is no folder {cwd}"
        raise GitFailed(f"{what}.") from None
    except OSError as error:
        raise GitFailed(f"git cannot be started: {error.strerror}.") from None
    if most is not None:
        done = _unpiped(done, most)
    elif done.truncated:
        raise GitFailed(f"git {_verb(words)} printed too much.", "large")
    if done.returncode not in allowed:
        raise _failed(words, done, secrets)
    return done


def settings(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the environment that gives git this configuration, over that of any file."""
    listed = list(pairs)
    told = {"GIT_CONFIG_COUNT": str(len(listed))}
    for number, (key, value) in enumerate(listed):
        told[f"GIT_CONFIG_KEY_{number}"] = key
        told[f"GIT_CONFIG_VALUE_{number}"] = value
    return told


def header(url: str, token: str) -> tuple[str, str]:
    """Return the configuration that sends a token to one repository, as GitHub takes it.

    https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app
    """
    return f"http.{url}.extraHeader", f"Authorization: Basic {_basic(token)}"


def _network() -> dict[str, str]:
    return {name: os.environ[name] for name in _NETWORK if name in os.environ}


def _basic(token: str) -> str:
    return base64.b64encode(f"x-access-token:{token}".encode()).decode()


def _verb(words: Sequence[str]) -> str:
    return next((word for word in words if not word.startswith("-")), "")


def _unpiped(done: Completed, most: int) -> Completed:
    """Return what git itself has done in the pipe."""
    told = _EXIT.search(done.stderr)
    truncated = len(done.stdout) > most
    code = int(told.group(1)) if told else done.returncode or 1
    if truncated and code == _SIGPIPE:
        code = 0
    stderr = done.stderr[: told.start()] if told else done.stderr
    return Completed(code, done.stdout[:most], stderr, truncated)


def _failed(words: Sequence[str], done: Completed, secrets: Sequence[str]) -> GitFailed:
    text = done.stderr.decode("utf-8", "replace")
    if _OF_FILES.search(text):
        reason: Reason = "other"
    elif "could not read Username" in text or "Authentication failed" in text:
        reason = "credentials"
    else:
        reason = next((name for name, seen in _REASONS if seen.search(text)), "other")
    said = _masked(_last(text), secrets) or f"exit code {done.returncode}"
    sentence = _SENTENCES.get(reason)
    told = f"git {_verb(words)}: {said}"
    plain = sentence or "git failed."
    return GitFailed(f"{plain} ({told})", reason, plain=plain)


def _last(text: str) -> str:
    """Return the line that says what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for mark in ("fatal: ", "error: ", "remote: "):
        for line in lines:
            if line.startswith(mark):
                return line.removeprefix(mark)
    return lines[-1] if lines else ""


def _masked(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        if secret:
            text = text.replace(_basic(secret), "***").replace(secret, "***")
    text = _CONTROL.sub(" ", _USERINFO.sub("://***@", text))
    return text if len(text) <= _MOST_SAID else text[:_MOST_SAID] + "…"
