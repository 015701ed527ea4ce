"""What must stand at GitHub when all is at rest: each answer, review and check, in its place."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from tests.kill.github.traffic import Question, Traffic, subject
from tests.kill.host import HostProcess

from threadline.testing.laws import violations
from threadline_github.testing import (
    DEFAULTS,
    Comment,
    FakeGitHub,
    Issue,
    Pull,
    Review,
    ReviewComment,
)

__all__ = ["check", "settle", "standing"]

EVENTS = "opened|ready_for_review|reopened|rerequested|review_requested|synchronize"
NAMES = re.compile(rf"(?<!end-)\b(?:[qsw][0-9]+x[0-9]+|(?:{EVENTS})-[0-9a-f]{{12}})\b")
ENDS = re.compile(rf"\bend-([qw][0-9]+x[0-9]+|(?:{EVENTS})-[0-9a-f]{{12}})\b")
TURN = re.compile(r"\(`(turn_\w+)`\)")
POINTER = re.compile(r"See \[the answer\]\(\S+#(issuecomment-|discussion_r)(\d+)\)")
UNFINISHED = "_Working on it", "_Waiting", "Interrupted:"
CODE = frozenset(EVENTS.split("|"))
TAKEN_BACK = "It was taken back."
RESTING = ("waiting", "completed", "failed")
Said = Comment | ReviewComment


@dataclass(slots=True)
class Chain:
    """A turn with those that resumed it: what it heard, and what came of it."""

    heard: set[str] = field(default_factory=set)
    on_code: bool = False
    checked: bool = False
    stopped: bool = False


@dataclass(slots=True)
class Book:
    """What one session's log says, and the deliveries that it names with their outcomes."""

    session_id: str
    log: bytes
    outcomes: dict[str, tuple[str, int, str | None]] = field(default_factory=dict)
    chains: dict[str, Chain] = field(default_factory=dict)
    failed: dict[str, set[str]] = field(default_factory=dict)
    reviews: list[str] = field(default_factory=list)
    labels: set[str] = field(default_factory=set)

    def read(self) -> Book:
        """Read the log."""
        for line in self.log.splitlines():
            event = json.loads(line)
            self._take(event, event["type"], event["data"], event.get("turnId"))
        return self

    def _take(self, event: Any, kind: str, data: Any, turn_id: str | None) -> None:
        place = event["index"], turn_id
        if kind == "deliveries.cleared":
            self.outcomes |= dict.fromkeys(data["deliveryIds"], ("cleared", *place))
        if turn_id is None:
            return
        if kind == "turn.started" and data.get("resumes"):
            self.chains[turn_id] = self.chains.setdefault(data["resumes"], Chain())
        chain = self.chains.setdefault(turn_id, Chain())
        match kind:
            case "message.received":
                self.outcomes |= dict.fromkeys(data["deliveryIds"], ("prompted", *place))
                chain.heard |= {*data["deliveryIds"]}
                chain.on_code |= any(_trigger(part) in CODE for part in data["parts"])
            case "nudge.delivered":
                self.outcomes[data["deliveryId"]] = ("steered", *place)
                chain.heard.add(data["deliveryId"])
            case "action.result" if not data.get("isError"):
                self._resulted(data, chain)
            case "turn.failed":
                chain.stopped |= data["code"] == "stopped"
                if not data["code"].startswith("host_"):
                    self.failed[turn_id] = chain.heard

    def _resulted(self, data: Any, chain: Chain) -> None:
        output = data.get("output")
        kind = output.get("type") if isinstance(output, dict) else None
        if kind == "github_review":
            self.reviews.append(data["callId"])
        elif kind == "github_labels":
            self.labels |= {*output["add"]}
        chain.checked |= kind == "github_check"


def _trigger(part: Mapping[str, Any]) -> str:
    return str(((part.get("sender") or {}).get("attributes") or {}).get("trigger"))


# Rest


async def settle(
    host: HostProcess, http: aiohttp.ClientSession, traffic: Traffic, seconds: float
) -> list[str]:
    """Wait until all is at rest and as it must be; else return what is not, after so long."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        busy = await _busy(http, traffic)
        problems = [busy] if busy else await check(host, http, traffic)
        if not problems or loop.time() > deadline:
            return problems
        await asyncio.sleep(0.5)


async def _busy(http: aiohttp.ClientSession, traffic: Traffic) -> str | None:
    """Return what is still under way."""
    github = traffic.github
    if github.pulse.under_way or not all(one.done for one in github.deliveries()):
        return f"under way: {github.pulse.under_way}"
    for question, wires in (await _ledger(http, traffic)).items():
        if not wires:
            return f"{_told_question(question)} was never accepted"
        for wire in wires:
            if wire["state"] == "accepted" or any("intentAt" in one for one in wire["outbound"]):
                return f"{_told_question(question)} has no receipt: {wire}"
            if (status := await _status(http, wire["sessionId"])) not in RESTING:
                return f"{_told_question(question)} is in a session that is {status}"
    return None


async def _ledger(
    http: aiohttp.ClientSession, traffic: Traffic
) -> dict[Question, list[dict[str, Any]]]:
    """Return what the ledger says of each question, by whichever hook it was accepted."""
    guids: defaultdict[tuple[Any, ...], set[str]] = defaultdict(set)
    for delivery in traffic.github.deliveries():
        guids[subject(delivery)].add(delivery.guid)
    return {
        question: [
            wire
            for guid in sorted(guids[question.about])
            if (wire := await _get(http, f"/v1/deliveries/{guid}"))
        ]
        for question in list(traffic.asked)
    }


async def _status(http: aiohttp.ClientSession, session_id: str) -> str:
    answer = await _get(http, f"/v1/sessions?sessionId={session_id}")
    return str(answer["sessions"][0]["status"])


async def _get(http: aiohttp.ClientSession, path: str) -> dict[str, Any]:
    """Ask the host, also while it is starting; empty when there is nothing."""
    while True:
        try:
            async with http.get(path) as answer:
                if answer.status == 404:
                    return {}
                answer.raise_for_status()
                body: dict[str, Any] = await answer.json()
                return body
        except (aiohttp.ClientConnectionError, ConnectionError):
            await asyncio.sleep(0.05)


def standing(host: HostProcess, traffic: Traffic) -> dict[str, Any]:
    """Return all that stands at GitHub, and all logs, to be compared."""
    found: dict[str, Any] = {}
    for thread in _threads(traffic.github):
        name = _name(thread)
        found[name] = [(one.id, one.body, one.deleted) for one in thread.comments]
        if isinstance(thread, Pull):
            found[f"{name} lines"] = [(one.id, one.body) for one in thread.review_comments]
            found[f"{name} reviews"] = [(one.id, one.body, one.state) for one in thread.reviews]
            found[f"{name} checks"] = [
                (one.id, one.status, one.conclusion, len(one.annotations))
                for one in traffic.github.checks(thread)
            ]
    for path in sorted((host.state / "sessions").glob("*/events.ndjson")):
        # Those without a line are kept in readiness by a process.
        if log := path.read_bytes():
            found[path.parent.name] = log
    return found


# What must hold


async def check(host: HostProcess, http: aiohttp.ClientSession, traffic: Traffic) -> list[str]:
    """Return a sentence for each promise that was broken."""
    ledger = await _ledger(http, traffic)
    sessions = {wire["sessionId"] for wires in ledger.values() for wire in wires}
    books = {name: Book(name, host.log_bytes(name)).read() for name in sorted(sessions)}
    places: dict[Issue, set[str]] = {}
    for question, wires in ledger.items():
        places.setdefault(question.thread, set()).update(wire["sessionId"] for wire in wires)
    return [
        *_kept(ledger, books),
        *_apart(places),
        *_visible(traffic, ledger, books),
        *_stops(traffic, ledger, books),
        *_once(traffic.github),
        *_beside(traffic.github, places, books),
        *_strangers(traffic),
        *_folders(host, traffic),
        *_said(host),
    ]


def _kept(
    ledger: Mapping[Question, list[dict[str, Any]]], books: Mapping[str, Book]
) -> Iterator[str]:
    """Each question was accepted once, the ledger agrees with the log, and logs keep the laws."""
    accepted: defaultdict[str, set[str]] = defaultdict(set)
    for question, wires in ledger.items():
        if len(wires) != 1:
            yield f"{_told_question(question)} was accepted {len(wires)} times: {wires}"
        for wire in wires:
            accepted[wire["sessionId"]].add(wire["deliveryId"])
            said = books[wire["sessionId"]].outcomes.get(wire["deliveryId"])
            found = wire["state"], wire.get("eventIndex"), wire.get("turnId")
            if found != said:
                yield f"{_told_question(question)}: the log says {said}, the ledger {wire}"
            for post in wire["outbound"]:
                if "ref" not in post and post.get("failure") != TAKEN_BACK:
                    yield f"{_told_question(question)}: a post is {post}"
    for session_id, book in books.items():
        for problem in violations(book.log, accepted[session_id], at_rest=True):
            yield f"{session_id}: {problem}"
        for delivery_id in book.outcomes.keys() - accepted[session_id]:
            yield f"{session_id}: {delivery_id} was no question"


def _apart(places: Mapping[Issue, set[str]]) -> Iterator[str]:
    """Each conversation is one session of its own."""
    for thread, sessions in places.items():
        if len(sessions) != 1:
            yield f"{_name(thread)} is in {len(sessions)} sessions: {sessions}"
    for session_id, count in Counter(one for found in places.values() for one in found).items():
        if count > 1:
            yield f"{session_id} is {count} conversations"


def _visible(
    traffic: Traffic,
    ledger: Mapping[Question, list[dict[str, Any]]],
    books: Mapping[str, Book],
) -> Iterator[str]:
    """Each question is named by one comment, in its place or with a pointer there; none else is.

    What was cleared is not named. A long answer has its end there, once; of one that became shorter
    no end is left.
    """
    shown, pointers = _answers(traffic.github, books)
    named = set()
    for question, wires in ledger.items():
        # What a description asks comes in the delivery that also says that it was opened.
        keys = [(question.thread, name) for name in (question.name, *_ids(wires))]
        found = [one for key in keys for one in shown.get(key, [])]
        named.update(keys)
        wanted = 0 if any(wire["state"] == "cleared" for wire in wires) else 1
        if len(found) != wanted:
            yield f"{_told_question(question)} is answered by {[_told(one) for one in found]}"
        elif wanted and question.spoken and _place(found[0]) != question.place:
            told = pointers[question.thread, question.place, found[0].id]
            if told != 1:
                said = _told(found[0])
                yield f"{_told_question(question)} is told {told} times of {said}"
    for thread, name in shown.keys() - named:
        said = _told(shown[thread, name][0])
        yield f"{name} was not asked in {_name(thread)}, and is answered: {said}"
    yield from _ends(traffic.github)


def _ids(wires: Iterable[Mapping[str, Any]]) -> list[str]:
    return [str(wire["deliveryId"]) for wire in wires]


def _answers(
    github: FakeGitHub, books: Mapping[str, Book]
) -> tuple[dict[tuple[Issue, str], list[Said]], Counter[tuple[Issue, int | None, int]]]:
    """Return which comments name what, and how often a place has a pointer to a comment.

    The notice of a turn that failed names what the turn heard.
    """
    failed = {turn: heard for book in books.values() for turn, heard in book.failed.items()}
    shown: dict[tuple[Issue, str], list[Said]] = {}
    pointers = Counter[tuple[Issue, int | None, int]]()
    for thread in _threads(github):
        for one in _by_bot(thread):
            names = NAMES.findall(one.body)
            for turn_id in TURN.findall(one.body):
                names += failed.get(turn_id, ())
            for name in names:
                shown.setdefault((thread, name), []).append(one)
            for _, number in POINTER.findall(one.body):
                pointers[thread, _place(one), int(number)] += 1
    return shown, pointers


def _ends(github: FakeGitHub) -> Iterator[str]:
    for thread in _threads(github):
        wanted, ends = Counter[str](), Counter[str]()
        for one in _by_bot(thread):
            names = NAMES.findall(one.body)
            wanted.update(names[:1] if names and "at some length" in one.body else ())
            ends.update(ENDS.findall(one.body))
        for name in wanted.keys() | ends.keys():
            if ends[name] != wanted[name]:
                yield f"the end of {name} is there {ends[name]} times, not {wanted[name]}"


def _stops(
    traffic: Traffic,
    ledger: Mapping[Question, list[dict[str, Any]]],
    books: Mapping[str, Book],
) -> Iterator[str]:
    """What somebody stopped has ended so, and nothing else was stopped."""
    stopped = set(_stopped(books.values()))
    for question, wires in ledger.items():
        for wire in wires:
            book = books[wire["sessionId"]]
            chain = book.chains.get(str(wire.get("turnId")))
            if question in traffic.stopped and wire["state"] != "cleared":
                ends = chain is not None and (
                    chain.stopped or not book.failed.keys().isdisjoint(_turns(book, chain))
                )
                if not ends:
                    yield f"{_told_question(question)} was not stopped"
    with_stops = {
        comment.thread
        for thread in _threads(traffic.github)
        for comment in thread.comments
        if comment.body.endswith(" stop") and comment.author.login != DEFAULTS["stranger"]
    }
    for question, wires in ledger.items():
        for wire in wires:
            if wire["sessionId"] in stopped and question.thread not in with_stops:
                yield f"{_told_question(question)} was stopped by nobody who may"


def _stopped(books: Iterable[Book]) -> Iterator[str]:
    for book in books:
        if any(chain.stopped for chain in book.chains.values()):
            yield book.session_id


def _turns(book: Book, chain: Chain) -> set[str]:
    return {turn_id for turn_id, one in book.chains.items() if one is chain}


def _once(github: FakeGitHub) -> Iterator[str]:
    """Nothing of the agent is there twice, and no work is left to be done."""
    for thread in _threads(github):
        for one in _by_bot(thread):
            if one.body.startswith(UNFINISHED):
                yield f"unfinished in {_name(thread)}: {_told(one)} {one.history[-2:]}"
        bodies: list[Any] = [*_by_bot(thread)]
        if isinstance(thread, Pull):
            bodies += _reviews(github, thread)
        for marker, count in Counter(_marker(one.body) for one in bodies).items():
            if count > 1:
                yield f"{marker} is {count} times in {_name(thread)}"


def _beside(
    github: FakeGitHub, places: Mapping[Issue, set[str]], books: Mapping[str, Book]
) -> Iterator[str]:
    """Each review that a tool gave is there, each check has ended, and labels are on."""
    for thread, sessions in places.items():
        found = [books[name] for name in sessions if name in books]
        labels = {label for book in found for label in book.labels}
        if labels - {*thread.labels}:
            yield f"{_name(thread)} lacks the labels {labels}"
        calls = [call for book in found for call in book.reviews]
        if not isinstance(thread, Pull):
            there = [one.body for one in _by_bot(thread) if "/review/" in _marker(one.body)]
        else:
            there = [one.body for one in _reviews(github, thread)]
            yield from _checks(github, thread, found)
        wanted = sorted(calls)
        marked = sorted(_marker(body).partition("/review/")[2].partition("/")[0] for body in there)
        if wanted != marked:
            yield f"{_name(thread)} has the reviews {marked}, of {wanted}"


def _checks(github: FakeGitHub, pull: Pull, books: list[Book]) -> Iterator[str]:
    wanted = {
        id(chain)
        for book in books
        for chain in book.chains.values()
        if chain.on_code or chain.checked
    }
    checks = [one for one in github.checks(pull) if one.app is github.app]
    if len({one.external_id for one in checks}) != len(checks) or len(checks) != len(wanted):
        told = [(one.external_id, one.status, one.conclusion) for one in checks]
        yield f"{_name(pull)} has {len(checks)} checks of {len(wanted)}: {told}"
    for one in checks:
        if one.status != "completed" or one.conclusion is None:
            yield f"{_name(pull)}: the check {one.external_id} is {one.status}"
        notes = Counter(json.dumps(note, sort_keys=True) for note in one.annotations)
        if any(count > 1 for count in notes.values()):
            yield f"{_name(pull)}: the check {one.external_id} says twice {notes}"


def _strangers(traffic: Traffic) -> Iterator[str]:
    """Where only a stranger spoke there is nothing of the agent."""
    known = {question.thread for question in traffic.asked}
    for thread in _threads(traffic.github):
        if thread in known:
            continue
        if [*_by_bot(thread)] or (isinstance(thread, Pull) and _reviews(traffic.github, thread)):
            yield f"the agent speaks in {_name(thread)}"
        if isinstance(thread, Pull) and traffic.github.checks(thread):
            yield f"the agent checks {_name(thread)}"


def _folders(host: HostProcess, traffic: Traffic) -> Iterator[str]:
    """No code of a pull request that is closed is checked out."""
    for thread in _threads(traffic.github):
        place = f"channels/github/{thread.repository.id}/pull-{thread.number}"
        if thread.state == "closed" and (host.state / place).exists():
            yield f"{_name(thread)} is closed, and {place} is there"


def _said(host: HostProcess) -> Iterator[str]:
    """The host reported no error of its own, and no handler failed."""
    for line in host.log.read_bytes().splitlines():
        if b'"level": "error"' in line or line.startswith(b"Traceback"):
            yield f"the host said: {line.decode('utf-8', 'replace')[:1500]}"


# What there is


def _threads(github: FakeGitHub) -> Iterator[Issue]:
    for repository in github.state.repositories.values():
        yield from repository.threads.values()


def _by_bot(thread: Issue) -> Iterator[Said]:
    """Yield the agent's comments; those on lines are replies, what else is there is a review's."""
    for one in thread.comments:
        if not one.deleted and one.author.login == DEFAULTS["bot"]:
            yield one
    for line in thread.review_comments if isinstance(thread, Pull) else ():
        if not line.deleted and line.author.login == DEFAULTS["bot"] and line.reply_to is not None:
            yield line


def _reviews(github: FakeGitHub, pull: Pull) -> list[Review]:
    return [one for one in github.reviews(pull) if one.author.login == DEFAULTS["bot"]]


def _place(one: Said) -> int | None:
    return one.reply_to if isinstance(one, ReviewComment) else None


def _marker(body: str) -> str:
    return body.rstrip().rpartition("\n")[2].removesuffix(" -->")


def _name(thread: Issue) -> str:
    return f"{thread.repository.full_name}#{thread.number}"


def _told_question(question: Question) -> str:
    return f"{question.name} in {_name(question.thread)} at {question.place}"


def _told(one: Said) -> str:
    return f"{one.id} at {_place(one)}: {one.body[:80]!r} {_marker(one.body)}"
