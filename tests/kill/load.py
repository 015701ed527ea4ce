"""Many clients that speak, interrupt, stop, repeat themselves and try again; and readers.

A client tries a request again, with the same delivery id, until it has an answer. What it was told
is kept, to be held against the logs when all is at rest.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from tests.kill.reader import Reader

__all__ = ["Conversation", "Load", "Sent"]

RETRY_SECONDS = 0.03
KINDS = {"start": 18, "follow": 38, "said": 22, "asked": 5, "stop": 6, "repeat": 8, "conflict": 3}


@dataclass(slots=True)
class Sent:
    """A delivery that was acknowledged: what was asked, and the first answer."""

    path: str
    body: dict[str, Any]
    answer: dict[str, Any]

    @property
    def delivery_id(self) -> str:
        """The id that the client chose."""
        return str(self.answer["deliveryId"])

    @property
    def session_id(self) -> str:
        """The session that took it."""
        return str(self.answer["sessionId"])


@dataclass(slots=True)
class Conversation:
    """An HTTP session of one client, and its newest token."""

    session_id: str
    token: str


@dataclass(slots=True)
class Load:
    """``deliveries`` sent by ``clients`` at once to the host at ``url``."""

    url: str
    deliveries: int
    clients: int
    seed: int
    acknowledged: dict[str, Sent] = field(default_factory=dict)
    sent_ids: set[str] = field(default_factory=set)
    readers: dict[str, Reader] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    retries: int = 0
    repeats: int = 0
    stops: int = 0
    _taken: int = 0
    _http: aiohttp.ClientSession | None = None

    async def run(self) -> None:
        """Send everything; readers go on until they are closed."""
        async with asyncio.TaskGroup() as group:
            for number in range(self.clients):
                group.create_task(self._client(number))

    async def __aenter__(self) -> Load:
        """Open the connections."""
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        self._http = aiohttp.ClientSession(self.url, connector=connector, timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the readers and close the connections."""
        for reader in self.readers.values():
            await reader.close()
        await self.http.close()

    @property
    def http(self) -> aiohttp.ClientSession:
        """The client of all requests."""
        assert self._http is not None
        return self._http

    # One client

    async def _client(self, number: int) -> None:
        dice = random.Random(f"{self.seed}/{number}")
        mine: list[Conversation] = []
        while self._taken < self.deliveries:
            kind = dice.choices(list(KINDS), list(KINDS.values()))[0]
            if kind in ("start", "follow", "said", "asked"):
                self._taken += 1
            await self._act(kind, dice, mine, f"d{self.seed}.{number}.{self._taken}")
            await asyncio.sleep(dice.expovariate(1 / 0.01))

    async def _act(
        self, kind: str, dice: random.Random, mine: list[Conversation], delivery_id: str
    ) -> None:
        text = f"{delivery_id}: " + "please do it, \u00e9\u2028 \U0001f600 " * dice.randint(1, 3)
        match kind:
            case "follow" if mine:
                await self._follow(dice, dice.choice(mine[-3:]), delivery_id, text)
            case "said" | "asked":
                room = f"room-{dice.randrange(8)}" if kind == "said" else f"task-{delivery_id}"
                body = {"room": room, "text": text, "id": delivery_id}
                await self.send(f"/v1/channels/desk/{kind}", body, delivery_id)
            case "stop" if mine:
                await self._stop(dice, dice.choice(mine).session_id)
            case "repeat" if self.acknowledged:
                await self.repeat(dice.choice(list(self.acknowledged.values())))
            case "conflict" if self.acknowledged:
                await self._conflict(dice.choice(list(self.acknowledged.values())))
            case "start" | "follow":
                body = {"message": text, "deliveryId": delivery_id, "title": f"of {delivery_id}"}
                sent = await self.send("/v1/session", body, delivery_id)
                mine.append(Conversation(sent.session_id, sent.answer["continuationToken"]))

    async def _follow(
        self, dice: random.Random, talk: Conversation, delivery_id: str, text: str
    ) -> None:
        admission = dice.choice(("coalesce", "coalesce", "preempt"))
        body = {"message": text, "continuationToken": talk.token, "deliveryId": delivery_id}
        path = f"/v1/session/{talk.session_id}"
        sent = await self.send(path, body | {"admission": admission}, delivery_id)
        talk.token = sent.answer["continuationToken"]

    async def _stop(self, dice: random.Random, session_id: str) -> None:
        body = {"clearPending": dice.random() < 0.5}
        status, answer = await self.post(f"/v1/session/{session_id}/stop", body)
        self.stops += 1
        if status != 200:
            self.problems.append(f"stop of {session_id}: {status} {answer}")

    async def send(self, path: str, body: dict[str, Any], delivery_id: str) -> Sent:
        """Send a delivery until it is answered, and follow its session."""
        self.sent_ids.add(delivery_id)
        status, answer = await self.post(path, body)
        if status not in (200, 202):
            self.problems.append(f"{delivery_id} to {path}: {status} {answer}")
            raise AssertionError(self.problems[-1])
        sent = Sent(path, body, answer)
        if sent.delivery_id != delivery_id:
            self.problems.append(f"{delivery_id} was answered as {sent.delivery_id}")
        self.acknowledged[delivery_id] = sent
        if sent.session_id not in self.readers:
            reader = Reader(self.http, sent.session_id, sse=len(self.readers) % 8 == 7)
            self.readers[sent.session_id] = reader
        return sent

    async def repeat(self, sent: Sent) -> None:
        """Send what was acknowledged before: the answer must be the first one."""
        status, answer = await self.post(sent.path, sent.body)
        self.repeats += 1
        same = all(
            answer.get(key) == sent.answer[key]
            for key in ("sessionId", "continuationToken", "deliveryId")
        )
        if status not in (200, 202) or not same or answer.get("admitted") != "duplicate":
            self.problems.append(f"repeat of {sent.answer}: {status} {answer}")

    async def _conflict(self, sent: Sent) -> None:
        field_ = "message" if "message" in sent.body else "text"
        status, answer = await self.post(sent.path, {**sent.body, field_: "something else"})
        if status != 409 or answer.get("error") != "delivery_conflict":
            self.problems.append(f"{sent.delivery_id} with another text: {status} {answer}")

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Post until there is an answer that is not the host's absence."""
        while True:
            try:
                async with self.http.post(path, json=body) as answer:
                    if answer.status != 503:
                        return answer.status, await answer.json()
            except (aiohttp.ClientError, ConnectionError):
                pass
            self.retries += 1
            await asyncio.sleep(RETRY_SECONDS)
