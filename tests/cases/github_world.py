"""A GitHub and a host that serves its agent there, with time in the test's hands."""

from __future__ import annotations

import contextlib
import copy
import errno
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs

from tests.cases.git_server import GitServer
from tests.cases.pouring import pour
from tests.cases.served import EPOCH, STEP, ServedWorld, encoded, filled
from tests.cases.told import Answer as Reply
from tests.cases.told import Tool
from tests.cases.world import NotCoveredError

from threadline.agent.context import ToolContext
from threadline.agent.tools import tool
from threadline.principal import Principal
from threadline.testing import github_signature
from threadline.testing.inbound import Answer
from threadline.testing.session import HostSession
from threadline_github.channel import GitHubChannel
from threadline_github.inbound.sweep import SECONDS
from threadline_github.outbound.tools import review_pull_request
from threadline_github.testing import (
    DEFAULTS,
    Account,
    Call,
    Comment,
    FakeGitHub,
    Issue,
    Pull,
    Repository,
    ReviewComment,
)

__all__ = [
    "BOT",
    "COMMENTS",
    "HOOK",
    "PR",
    "REPOSITORY",
    "SECRET",
    "GitHubWorld",
    "changed",
]

HOOK = "/v1/channels/github"
REPOSITORY, BOT = DEFAULTS["repository"], DEFAULTS["bot"]
SECRET = DEFAULTS["webhook_secret"]
PR = f"pr:{REPOSITORY}#7"
HEAD = "a" * 40
FILES = {"up.py": ("a\nc\n", "a\nb\nc\n")}
GIT_SECONDS = 5.0
UPDATED = datetime(2025, 10, 9, 8, tzinfo=UTC)
"""When the repository was changed last, as the cases have it."""
COMMENTS = "/repos/*/issues/7/comments"
_SIGNATURE = "X-Hub-Signature-256"
_HIDDEN = re.compile(r"<!--.*?-->", re.DOTALL)
_ISSUED = re.compile(r"token issued before (\d+)")
_FAULTS = {"session-store.append": "commit"}


def changed(step: Mapping[str, Any], **paths: Any) -> dict[str, Any]:
    """Return a step whose payload has other values, by paths such as ``comment__body``.

    It is another delivery when ``delivery`` says its id, which stands in no payload.
    """
    made = copy.deepcopy(dict(step))
    delivery = paths.pop("delivery", None)
    if delivery is not None:
        made["headers"] = {**made["headers"], "X-GitHub-Delivery": delivery}
    if "event" in paths:
        made["headers"] = {**made["headers"], "X-GitHub-Event": paths.pop("event")}
    body = made["body"] if "body" in made else made["payload"]
    for path, value in paths.items():
        *above, last = path.split("__")
        place = body
        for name in above:
            place = place[name]
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return made


class GitHubWorld(ServedWorld):
    """One repository, with pull request 7 and issue 9, and one host.

    With ``code`` there is a real git repository, served over HTTP, and the channel checks it out:
    then ``shas`` says which real commit stands for one of a case. ``fork``: the code of the pull
    request is of a fork. ``newest`` is when something was said of a pull request last; what is
    older changes it no more. ``deployed`` is what the tool that writes has written.
    """

    kind: ClassVar[str] = "github"

    def __init__(
        self, root: Path, *, begins: int = EPOCH, code: bool = False, fork: bool = False
    ) -> None:
        super().__init__(root, begins=begins)
        self.github = FakeGitHub(clock=self.clock)
        self.git = GitServer(self.clock, self._admits)
        self.bare = root.parent / f"{root.name}.origin.git"
        self.code, self.fork = code, fork
        self.files: dict[str, tuple[str | None, str | None]] = dict(FILES)
        self.body, self.head = "Adds one retry.", HEAD
        self.shas: dict[str, str] = {}
        self.deployed: list[str] = []
        self.options["worktree"] = code
        self.agent["tools"] = [*self._tools(), review_pull_request]
        self.newest: dict[int, str] = {}

    # Life

    @property
    def outside(self) -> FakeGitHub:
        """GitHub."""
        return self.github

    async def _opened(self) -> None:
        await self.git.start()
        widget = self.github.repository()
        widget.created_at = UPDATED
        if self.code:
            self.github.back(widget, self.bare)
            widget.clone_url = self.git.serve(REPOSITORY, self.bare)
        author = self.github.user("dev-two")
        self.pull = author.open_pull(
            number=7,
            body=self.body,
            files=self.files,
            head=None if self.code else self.head,
            fork=self.fork,
            tell=False,
        )
        self.shas |= {HEAD: self.pull.head} if self.code else {}
        self.issue = author.open_issue(number=9)
        self.github.add_user("outsider-fixture", 999)

    def _configure(self) -> None:
        self.env = {**self.github.environ, **self.env}

    async def _served(self) -> None:
        self.github.app.webhook_url = self.host.url + HOOK
        await self.until(self._swept, "the end of the first look for missed deliveries")

    def _swept(self) -> bool:
        """Tell whether the channel sleeps until it looks for missed deliveries again."""
        return any(
            abs(deadline - self.now_s - SECONDS) < 1e-6
            for deadline, _, sleeper in self.clock._sleepers
            if not sleeper.done()
        )

    async def _close(self) -> None:
        await self.git.close()
        await super()._close()

    def _channel(self) -> GitHubChannel:
        return GitHubChannel(**self.options)

    def _person(self) -> Principal:
        return Principal("github", str(self.github.user("dev-one").id))

    def _tools(self) -> list[Any]:
        @tool(effect="write")
        async def deploy(service: str) -> str:
            """Deploy a service."""
            self.deployed.append(service)
            return f"deployed {service}"

        @tool
        async def shell(command: str, ctx: ToolContext) -> str:
            """Run a command in the working folder."""
            return (await ctx.run("sh", "-c", command)).text

        return [deploy, shell, self._idle()]

    def _admits(self, value: str) -> bool:
        """Tell whether a token is good for the repository's code now."""
        token = self.github.state.tokens.get(value)
        if token is None or token.revoked or token.installation is None:
            return False
        alive = token.expires_at is None or self.clock.now() < token.expires_at
        return alive and token.installation.covers(self.github.repository())

    async def _step(self, seconds: float) -> None:
        """Move the time on when git on this machine, which has real time only, is done."""
        if self.code and self._checks_out():
            with contextlib.suppress(AssertionError):
                await self.host.until(lambda: not self._checks_out(), seconds=GIT_SECONDS)
        await super()._step(min(seconds, STEP) if self.git.waiting else seconds)

    def _checks_out(self) -> bool:
        """Tell whether code may be checked out now, unless that waits for the time to pass."""
        if self._given is None or not self._given.running or self.git.waiting:
            return False
        return any(session.status == "queued" for session in self.sessions())

    @asynccontextmanager
    async def quietly(self) -> AsyncIterator[None]:
        """Let things happen at GitHub of which no webhook tells."""
        hook = self.github.app.hook
        hook.url, url = None, hook.url
        yield
        await self.github.settled()
        hook.url = url

    async def push(self, stands_for: str, files: Mapping[str, str] | None = None) -> str:
        """Push to the pull request, and tell nobody; return the commit."""
        changes = None if files is None else {path: (None, text) for path, text in files.items()}
        real = None if self.code else stands_for
        async with self.quietly():
            sha = self.github.user("dev-two").push(self.pull, files=changes, head=real)
        if self.code:
            self.shas[stands_for] = sha
        return sha

    # In

    async def post(
        self,
        step: Mapping[str, Any],
        variant: Any = None,
        *,
        signed: bool = False,
        plant: bool = True,
        headers: Mapping[str, str | None] | None = None,
    ) -> Answer:
        """Send a request byte by byte as the case has it, or with ``signed`` under a new signature.

        What it tells of is so at GitHub from then on.
        """
        if step.get("route", "github.webhook") != "github.webhook":
            raise NotCoveredError(f"the route {step['route']!r}")
        raw = step["raw_body"].encode() if "raw_body" in step else b""
        if not raw:
            body = step["body"] if "body" in step else step["payload"]
            raw = encoded(filled(body, variant))
            signed = signed or filled(body, variant) != body
        for known, real in self.shas.items():
            signed = signed or known.encode() in raw
            raw = raw.replace(known.encode(), real.encode())
        sent = {**step["headers"], **(headers or {})}
        if signed:
            sent[_SIGNATURE] = github_signature(SECRET, raw)
        if plant:
            self.plant(sent, raw)
        told = {name: value for name, value in sent.items() if value is not None}
        return await self.host.post(HOOK, body=raw, headers=told)

    def plant(self, headers: Mapping[str, Any], raw: bytes) -> None:
        """Let a comment stand where it was made, or a pull request be as an event tells of it."""
        try:
            text = parse_qs(raw.decode())["payload"][0] if raw[:8] == b"payload=" else raw
            payload = json.loads(text)
        except ValueError:
            return
        if not isinstance(payload, dict):
            return
        match headers["X-GitHub-Event"]:
            case "issue_comment":
                self._planted_comment(payload)
            case "pull_request_review_comment":
                self._planted_line(payload["comment"])
            case "pull_request":
                self._planted_pull(payload["pull_request"])

    def _planted_comment(self, payload: Mapping[str, Any]) -> None:
        found, number = payload["comment"], payload["issue"]["number"]
        thread = self.github.repository().threads[number]
        at = datetime.fromisoformat(found["created_at"])
        author = self._author(found)
        for one in thread.comments:
            if one.id == found["id"]:
                one.body, one.deleted = found["body"], payload["action"] == "deleted"
                return
        thread.comments.append(Comment(found["id"], thread, author, found["body"], at, at))

    def _planted_line(self, found: Mapping[str, Any]) -> None:
        at = datetime.fromisoformat(found["created_at"])
        self.pull.review_comments.append(
            ReviewComment(
                found["id"],
                self.pull,
                self._author(found),
                found["body"],
                found["path"],
                found["line"],
                found["side"],
                self.pull.head,
                found["diff_hunk"],
                at,
                at,
            )
        )

    def _planted_pull(self, found: Mapping[str, Any]) -> None:
        """Let a pull request be so, unless something newer is known."""
        number, stamp = found["number"], found["updated_at"]
        if stamp < self.newest.get(number, ""):
            return
        self.newest[number] = stamp
        head = found["head"]["sha"]
        self.pull.diffs.setdefault(head, self.pull.diff)
        self.pull.head, self.pull.state = head, found["state"]
        if found["head"].get("repo") is None:
            self.pull.source = None

    def _author(self, found: Mapping[str, Any]) -> Account:
        login = found["user"]["login"]
        if login.lower() not in self.github.state.accounts:
            bot = found["user"]["type"] == "Bot"
            self.github.add_user(login, found["user"]["id"], bot=bot)
        self.github.associate(login, found["author_association"])
        return self.github.state.account(login)

    async def _do(self, step: Mapping[str, Any], variant: Any) -> Answer | None:
        match step["do"]:
            case "post":
                return await self.post(step, variant)
            case "post_large":
                size = step["bytes"]
                poured = await pour(self.host.url, HOOK, [b"x" * size], length=size)
                return poured.answer
            case "stub_github":
                self.stub(step)
            case "agent_review":
                body = {"body": "Looks right.", "event": step["event"]}
                self.harness.tell(Tool("review_pull_request", body), Reply("Reviewed."))
            case "fault":
                self._fault(step)
            case _:
                return await super()._do(step, variant)
        return None

    def stub(self, step: Mapping[str, Any]) -> None:
        """Let GitHub answer calls as the case says."""
        self.github.fail(
            step.get("method", "*"),
            step.get("path", "*"),
            step["status"],
            headers=step.get("headers"),
            body=step.get("body"),
            times=step.get("times"),
            when=self._condition(step.get("when")),
        )

    def _condition(self, words: str | None) -> Callable[[Call], bool] | None:
        """Return what a condition in words means; the token of a second counts to it."""
        if words is None:
            return None
        found = _ISSUED.fullmatch(words)
        if found is None:
            raise NotCoveredError(f"the condition {words!r}")
        began = self.clock.now() - timedelta(seconds=self.now_s)
        latest = began + timedelta(seconds=int(found[1]))
        tokens = self.github.state.tokens
        return lambda call: call.token in tokens and tokens[call.token].issued_at <= latest

    def _fault(self, step: Mapping[str, Any]) -> None:
        if step["target"] not in _FAULTS or step["times"] != 1:
            raise NotCoveredError(f"the fault {step['target']!r}")
        self.disk.code = getattr(errno, step["error"])
        self.disk.only, self.disk.fail_at = _FAULTS[step["target"]], 1

    # What came of it

    def session(self, token: str = PR) -> HostSession:
        """Return the session of a conversation, which there must be."""
        found = self.named(token)
        assert found is not None, f"no session {token}"
        return found

    def said(self, thread: Issue | None = None) -> list[Comment]:
        """Return the agent's comments on the pull request, or on another thread."""
        shown = self.github.comments(thread or self.pull)
        return [one for one in shown if one.app is self.github.app]

    def words(self, thread: Issue | None = None) -> list[str]:
        """Return what people read of them, one by one."""
        return [_HIDDEN.sub("", one.body).strip() for one in self.said(thread)]

    def everywhere(self) -> list[Any]:
        """Return all that the agent shows anywhere."""
        found: list[Any] = []
        for repository in self.github.state.repositories.values():
            found += repository.checks
            for thread in repository.threads.values():
                found += self.said(thread)
                found += [reaction for one in thread.comments for reaction in one.reactions]
                if isinstance(thread, Pull):
                    found += [one for one in thread.reviews if one.author.login == BOT]
                    mine = [one for one in thread.review_comments if one.author.login == BOT]
                    found += mine
        return found

    def written(self) -> list[Call]:
        """Return the calls that change something in a repository."""
        return [call for call in self.github.calls(None, "/repos/*") if call.method != "GET"]

    def parts(self) -> list[dict[str, Any]]:
        """Return what the prompts were made of, in their order."""
        received = self.events("message.received")
        return [part for event in received for part in event["data"]["parts"]]

    def results(self, name: str) -> list[dict[str, Any]]:
        """Return what came of the calls of a tool."""
        found = [event["data"] for event in self.events("action.result")]
        return [data for data in found if data["toolName"] == name]

    def untouched(self) -> None:
        """Check that nothing was started or said."""
        assert self.sessions() == []
        assert self.accepted == []
        assert self.harness.begun == 0
        assert self.everywhere() == []
        assert self.written() == []

    @property
    def widget(self) -> Repository:
        """The repository."""
        return self.github.repository()
