"""People at work in the repositories of a FakeGitHub whose API and webhooks now and then fail."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from threadline.testing.gates import CallGate, Place
from threadline_github.testing import DEFAULTS, Delivery, FakeGitHub, Issue, Pull, ReviewComment
from threadline_github.testing.people import Person

__all__ = ["Question", "Traffic", "subject"]

REPOSITORIES = 4
MOST = 30  # conversations without a word of the agent before somebody begins another
PEOPLE = DEFAULTS["person"], DEFAULTS["other"]
MENTION = f"@{DEFAULTS['slug']} "
KINDS = {"pull": 50, "draft": 8, "fork": 10, "issue": 12, "stranger": 8, "stopped": 12}
DEEDS = {
    "comment": 30, "push": 20, "line": 18, "review": 8, "edit": 6, "request": 6, "stranger": 8,
    "close": 5, "rerun": 6,
}  # fmt: skip
FAULTS = {"none": 60, "limited": 8, "failed": 8, "passing": 8, "unheard": 6, "unanswered": 10}
HOOK_FAULTS = {"none": 50, "lost": 20, "twice": 15, "late": 15}
POSTING = (
    ("POST", "*/issues/*/comments"),
    ("POST", "*/issues/*/comments"),
    ("PATCH", "*/issues/comments/*"),
    ("POST", "*/replies"),
    ("PATCH", "*/pulls/comments/*"),
    ("POST", "*/reviews"),
    ("POST", "*/check-runs"),
    ("PATCH", "*/check-runs/*"),
)
HELD = (
    ("POST", "/repos/*"),
    ("PATCH", "/repos/*"),
    ("POST", "*/issues/*/comments"),
    ("PATCH", "*/issues/comments/*"),
    ("POST", "*/reviews"),
    ("POST", "*/check-runs"),
    ("PATCH", "*/check-runs/*"),
)
READING = (
    ("GET", "*/pulls/*"),
    ("GET", "*/comments"),
    ("GET", "*/check-runs*"),
    ("GET", "/app/hook/deliveries*"),
    ("POST", "*/access_tokens"),
)


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody asked, or what happened: what it is called, and where it is answered.

    ``about`` is by what its deliveries are known, see :func:`subject`. ``place`` is the discussion
    of a line, None for the conversation itself; ``spoken`` says that its place is told where the
    answer is, if that is elsewhere. ``accepted``: it was before somebody said to stop.
    """

    name: str
    thread: Issue
    about: tuple[Any, ...]
    place: int | None = None
    spoken: bool = False


def subject(delivery: Delivery) -> tuple[Any, ...]:
    """Return what a delivery is about: the same for all its copies."""
    event, payload = delivery.event, delivery.payload
    match event:
        case "issue_comment" | "pull_request_review_comment":
            return event, payload["comment"]["id"]
        case "pull_request_review":
            return event, payload["review"]["id"]
        case "issues":
            return event, payload["issue"]["id"], payload["action"]
        case "pull_request":
            pull = payload["pull_request"]
            return event, pull["id"], payload["action"], pull["head"]["sha"]
        case "check_run":
            return event, payload["check_run"]["id"], payload["action"]
    return (event,)


@dataclass(slots=True)
class Traffic:
    """``threads`` begun by ``clients`` at once, most with more behind their beginning."""

    github: FakeGitHub
    threads: int
    clients: int
    seed: int
    code: Path | None = None
    asked: list[Question] = field(default_factory=list)
    stopped: set[Question] = field(default_factory=set)
    begun: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    _names: list[str] = field(default_factory=list)
    _waiting: list[Issue] = field(default_factory=list)

    def prepare(self, hook: str) -> None:
        """Make the repositories; in half of them a hook of their own says everything twice.

        With ``code``, a folder, there are real git repositories.
        """
        self.github.app.webhook_url = hook
        for number in range(REPOSITORIES):
            name = f"{DEFAULTS['owner']}/load-{number}"
            self.github.add_repository(name)
            self._names.append(name)
            if self.code is not None:
                self.github.back(name, self.code / f"load-{number}.git")
            if number % 2:
                kind: Any = "form" if number == 1 else "json"
                self.github.add_hook(name, hook, content_type=kind)

    def hold(self, dice: random.Random, place: Place) -> CallGate:
        """Let the next call that posts wait."""
        method, path = dice.choice(HELD)
        return self.github.hold(method, path, place, times=1)

    async def run(self) -> None:
        """Do everything."""
        faults = asyncio.ensure_future(self._faults())
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self.clients):
                    group.create_task(self._client(random.Random(f"{self.seed}/{number}")))
        finally:
            faults.cancel()
            self.github.heal()

    async def _client(self, dice: random.Random) -> None:
        while True:
            while self._unheard() > MOST:  # noqa: ASYNC110 - else all is said in one outage
                await asyncio.sleep(0.01)
            if self.begun >= self.threads:
                return
            number, self.begun = self.begun, self.begun + 1
            await _Conversation(self, dice, number).run(self._names[dice.randrange(REPOSITORIES)])
            await asyncio.sleep(dice.expovariate(1 / 0.2))

    def begins(self, thread: Issue) -> None:
        """Take note of a conversation in which the agent is to say something."""
        self._waiting.append(thread)

    def _unheard(self) -> int:
        self._waiting = [
            one
            for one in self._waiting
            if not any(comment.author.type == "Bot" for comment in one.comments)
        ]
        return len(self._waiting)

    async def _faults(self) -> None:
        for fault, (method, path), hook in self._chosen():
            if fault == "limited":
                self.github.limit(method=method, path=path, retry_after=1)
            elif fault == "failed":
                self.github.fail(method, path, 503)
            elif fault == "passing":
                self.github.fail(method, path, 502, effect=True)
            elif fault != "none":
                self.github.drop(method, path, "before" if fault == "unheard" else "after")
            self.counts[fault] += fault != "none"
            if hook == "lost":
                self.github.webhooks.lose()
            elif hook == "twice":
                self.github.webhooks.duplicate()
            elif hook == "late":
                self.github.webhooks.delay(0.5)
            self.counts[f"{hook} deliveries"] += hook != "none"
            await asyncio.sleep(0.1)

    def _chosen(self) -> Iterator[tuple[str, tuple[str, str], str]]:
        dice = random.Random(f"{self.seed}/faults")
        while True:
            fault, hook = (
                dice.choices(list(faults), list(faults.values()))[0]
                for faults in (FAULTS, HOOK_FAULTS)
            )
            yield fault, dice.choice([*POSTING, *POSTING, *READING]), hook


@dataclass(slots=True)
class _Conversation:
    """One pull request or issue, and what happens in it."""

    traffic: Traffic
    dice: random.Random
    number: int
    said: int = 0
    lines: list[ReviewComment] = field(default_factory=list)
    done: set[str] = field(default_factory=set)

    async def run(self, repository: str) -> None:
        """Begin it, and go on for a while."""
        kind = self.dice.choices(list(KINDS), list(KINDS.values()))[0]
        self.traffic.counts[f"{kind}s begun"] += 1
        if kind == "issue":
            issue = self._person().open_issue(repository, body=self._words("q"))
            self._asks(self._last("q"), issue, ("issues", issue.id, "opened"))
            await self._goes_on(issue, lambda: self._comment(issue))
        elif kind == "stranger":
            self._stranger(repository)
        elif kind == "stopped":
            await self._stopped(self._open(repository))
        else:
            pull = self._open(repository, draft=kind == "draft", fork=kind == "fork")
            await self._goes_on(pull, lambda: self._deed(pull))

    async def _goes_on(self, thread: Issue, deed: Any) -> None:
        self.traffic.begins(thread)
        for _ in range(self.dice.choice((0, 1, 1, 2, 3, 5))):
            await asyncio.sleep(self.dice.expovariate(1 / 0.15))
            deed()

    # Beginnings

    def _open(self, repository: str, *, draft: bool = False, fork: bool = False) -> Pull:
        """Open a pull request; its text may be a question, too."""
        addresses = not draft and self.dice.random() < 0.2
        pull = self._person().open_pull(
            repository,
            body=self._words("q") if addresses else "Adds one retry.",
            files={"src/upload.py": (None, f"one\ntwo of {self.number}\nthree\n")},
            branch=f"change-{self.number}",
            draft=draft,
            fork=fork,
        )
        if not draft:
            self._happens(pull, "opened")
        if addresses:
            self._asks(self._last("q"), pull, self._about(pull, "opened"))
        if draft:
            self._person().ready(pull)
            self._happens(pull, "ready_for_review")
        return pull

    def _stranger(self, repository: str) -> None:
        """Let somebody who may not ask do all sorts of things."""
        stranger = self.traffic.github.user(DEFAULTS["stranger"])
        pull = stranger.open_pull(
            repository,
            body=f"{MENTION}please, what of s{self.number}x0?",
            files={"src/upload.py": (None, f"one\ntwo of {self.number}\nthree\n")},
            branch=f"change-{self.number}",
            fork=True,
        )
        stranger.comment(pull, f"{MENTION}please, what of s{self.number}x1?")
        stranger.push(pull)
        stranger.review_comment(pull, text=f"{MENTION}please, what of s{self.number}x2?")

    async def _stopped(self, pull: Pull) -> None:
        """Ask what has no answer, and stop it when the agent has heard."""
        self.traffic.begins(pull)
        comment = self._person().comment(pull, self._words("w"))
        asked = self._asks(self._last("w"), pull, ("issue_comment", comment.id), spoken=True)
        with_more = self.dice.random() < 0.5
        if with_more:
            self._comment(pull)
        heard = await self._heard(asked)
        await asyncio.sleep(self.dice.expovariate(1 / 0.3))
        self.traffic.github.user(DEFAULTS["stranger"]).comment(pull, f"{MENTION}stop")
        self._person().comment(pull, f"{MENTION}stop")
        if heard:
            self.traffic.stopped.add(asked)

    async def _heard(self, question: Question) -> bool:
        """Wait until a webhook with a question was taken; False when it takes too long."""
        for _ in range(60):
            if any(
                one.ok and subject(one) == question.about
                for one in reversed(self.traffic.github.deliveries("issue_comment"))
            ):
                return True
            await asyncio.sleep(0.05)
        return False

    # What people do then

    def _deed(self, pull: Pull) -> None:
        match self.dice.choices(list(DEEDS), list(DEEDS.values()))[0]:
            case "push" if pull.state == "open":
                for _ in range(self.dice.choice((1, 2, 3, 5))):
                    self._person().push(pull)
                    self._happens(pull, "synchronize")
            case "line":
                self._line(pull)
            case "review":
                review = self._person().review(pull, self._words("q"))
                self._asks(self._last("q"), pull, ("pull_request_review", review.id))
            case "edit":
                person = self._person()
                comment = person.comment(pull, "Hm.")
                person.edit_comment(comment, self._words("q"))
                about = "issue_comment", comment.id
                self._asks(self._last("q"), pull, about, spoken=True)
            case "request" if self._once("request"):
                self._person().request_review(pull)
                self._happens(pull, "review_requested")
            case "stranger":
                stranger = self.traffic.github.user(DEFAULTS["stranger"])
                text = f"please, what of s{self.number}x9?"
                stranger.comment(pull, MENTION + self.dice.choice((text, "stop")))
            case "close" if self._once("close"):
                self._person().close(pull)
                if self.dice.random() < 0.5:
                    self._person().reopen(pull)
                    self._happens(pull, "reopened")
            case "rerun":
                self._rerun(pull)
            case _:
                self._comment(pull)

    def _comment(self, thread: Issue) -> None:
        comment = self._person().comment(thread, self._words("q"))
        self._asks(self._last("q"), thread, ("issue_comment", comment.id), spoken=True)

    def _line(self, pull: Pull) -> None:
        first = self.dice.choice([None, *self.lines])
        comment = self._person().review_comment(pull, text=self._words("q"), reply_to=first)
        self.lines.append(comment)
        about = "pull_request_review_comment", comment.id
        place = comment.reply_to or comment.id
        self._asks(self._last("q"), pull, about, place=place, spoken=True)

    def _rerun(self, pull: Pull) -> None:
        """Press the button of a check that has ended, once for each commit."""
        for check in self.traffic.github.checks(pull):
            own = check.app is self.traffic.github.app and check.status == "completed"
            if own and self._once(f"rerun {check.head_sha}"):
                self._person().rerun(check)
                name = f"rerequested-{check.head_sha[:12]}"
                self._asks(name, pull, ("check_run", check.id, "rerequested"))
                return

    def _once(self, what: str) -> bool:
        new = what not in self.done
        self.done.add(what)
        return new

    # Questions

    def _happens(self, pull: Pull, action: str) -> None:
        self._asks(f"{action}-{pull.head[:12]}", pull, self._about(pull, action))

    def _about(self, pull: Pull, action: str) -> tuple[Any, ...]:
        return "pull_request", pull.id, action, pull.head

    def _asks(
        self,
        name: str,
        thread: Issue,
        about: tuple[Any, ...],
        *,
        place: int | None = None,
        spoken: bool = False,
    ) -> Question:
        asked = Question(name, thread, about, place, spoken)
        self.traffic.asked.append(asked)
        return asked

    def _words(self, letter: str) -> str:
        self.said += 1
        return f"{MENTION}please, what of {self._last(letter)}?"

    def _last(self, letter: str) -> str:
        return f"{letter}{self.number}x{self.said - 1}"

    def _person(self) -> Person:
        return self.traffic.github.user(self.dice.choice(PEOPLE))
