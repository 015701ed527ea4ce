"""People who ask in many threads of a FakeSlack whose API now and then fails."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from threadline_slack.testing import DEFAULTS, Delivery, FakeSlack

__all__ = ["CHANNELS", "STREAMING", "Question", "Traffic"]

CHANNELS = [f"C0LOAD{number:04d}" for number in range(12)]
MOST = 40  # events on their way before somebody begins another thread
# Slack's own are at once, a minute and five; a host is away for a second here, and often.
RETRIES = (0.0, 1.5, 5.0, 10.0, 20.0, 40.0)
FAULTS = {"none": 60, "limited": 8, "failed": 8, "passing": 8, "unheard": 6, "unanswered": 10}
STREAMING = ("chat.startStream", "chat.appendStream", "chat.stopStream")
READING = ("conversations.replies", "users.info")
MENTION = f"<@{DEFAULTS['bot_user']}> "
PEOPLE = DEFAULTS["person"], DEFAULTS["other"]


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody asked, and where."""

    name: str
    channel: str
    ts: str
    thread: str

    @property
    def delivery_id(self) -> str:
        """The id that the channel gives it."""
        return f"{DEFAULTS['team']}:{self.channel}:{self.ts}"


@dataclass(slots=True)
class Traffic:
    """``threads`` begun by ``clients`` at once, some with more questions behind the first.

    ``posting`` are the methods that the answers come by.
    """

    slack: FakeSlack
    threads: int
    clients: int
    seed: int
    posting: Sequence[str] = ("chat.postMessage",)
    asked: list[Question] = field(default_factory=list)
    begun: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    _sent: list[Delivery] = field(default_factory=list)
    _seen: int = 0

    def prepare(self) -> None:
        """Make the channels."""
        for number, channel in enumerate(CHANNELS):
            members = [DEFAULTS["bot_user"], *PEOPLE]
            self.slack.add_channel(channel, f"load-{number}", members=members)
        self.slack.options.retries = RETRIES

    async def run(self) -> None:
        """Ask everything."""
        faults = asyncio.ensure_future(self._faults())
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self.clients):
                    group.create_task(self._client(random.Random(f"{self.seed}/{number}")))
        finally:
            faults.cancel()
            self.slack.heal()

    async def _client(self, dice: random.Random) -> None:
        while True:
            while self._on_their_way() > MOST:  # noqa: ASYNC110 - else all is said in one outage
                await asyncio.sleep(0.01)
            if self.begun >= self.threads:
                return
            number, self.begun = self.begun, self.begun + 1
            channel = dice.choice(CHANNELS)
            first = self._ask(dice, f"q{number}x0", channel, None)
            for more in range(1, dice.choice((1, 1, 1, 2, 3))):
                await asyncio.sleep(dice.expovariate(1 / 0.08))
                self._ask(dice, f"q{number}x{more}", channel, first)
            await asyncio.sleep(dice.expovariate(1 / 0.2))

    def _ask(
        self, dice: random.Random, name: str, channel: str, first: Question | None
    ) -> Question:
        """Post a question; one without a mention only where the agent has heard of the thread."""
        plain = first is not None and self._heard(first) and dice.random() < 0.7
        text = f"{'' if plain else MENTION}please, what of {name}?"
        thread = None if first is None else first.ts
        post = self.slack.user(dice.choice(PEOPLE)).post(channel, text, thread_ts=thread)
        asked = Question(name, channel, post.ts, thread or post.ts)
        self.asked.append(asked)
        return asked

    def _on_their_way(self) -> int:
        sent = self.slack.outbound.deliveries
        self._sent += sent[self._seen :]
        self._seen = len(sent)
        self._sent = [one for one in self._sent if not one.done]
        return len(self._sent)

    def _heard(self, question: Question) -> bool:
        return any(
            one.accepted and one.event.get("ts") == question.ts
            for one in reversed(self.slack.deliveries())
        )

    async def _faults(self) -> None:
        for fault, method in self._chosen():
            if fault == "limited":
                self.slack.fail(method, "ratelimited", retry_after=1)
            elif fault == "failed":
                self.slack.fail(method, "any", status=503)
            elif fault == "passing":
                self.slack.fail(method, "internal_error", effect=method.startswith("chat."))
            elif fault != "none":
                self.slack.drop(method, "before" if fault == "unheard" else "after")
            self.counts[fault] += fault != "none"
            await asyncio.sleep(0.1)

    def _chosen(self) -> Iterator[tuple[str, str]]:
        dice = random.Random(f"{self.seed}/faults")
        while True:
            fault = dice.choices(list(FAULTS), list(FAULTS.values()))[0]
            yield fault, dice.choice([*self.posting, *self.posting, *READING])
