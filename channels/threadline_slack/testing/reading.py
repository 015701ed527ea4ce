"""What a test reads: what stands in a channel, what people see, what apps called and were told."""

from __future__ import annotations

from collections.abc import Callable

from threadline.testing.pulse import Pulse
from threadline_slack.testing.api import Call, WebApi
from threadline_slack.testing.methods.agents import session_of, status_of
from threadline_slack.testing.model import AgentThread, Message, View
from threadline_slack.testing.outbound import Delivery, Outbound
from threadline_slack.testing.state import State
from threadline_slack.testing.views import Views
from threadline_slack.testing.wire import visible_text

__all__ = ["Reading"]


class Reading:
    """Reads the state, and waits for it to become something."""

    state: State
    api: WebApi
    outbound: Outbound
    views: Views
    pulse: Pulse

    # Messages

    def messages(self, channel: str, thread_ts: str | None = None) -> list[Message]:
        """Return what stands in a channel outside threads, or in a thread from its root on."""
        posts = sorted(self.state.channel(channel).posts.values(), key=lambda one: one.ts)
        if thread_ts is not None:
            return [one for one in posts if thread_ts in (one.ts, one.root)]
        return [one for one in posts if one.root is None or one.subtype == "thread_broadcast"]

    def message(self, ts: str, channel: str | None = None) -> Message:
        """Return a message by its timestamp; raises LookupError when it is not there."""
        return self.state.message(ts, channel)

    def visible(
        self, channel: str, thread_ts: str | None = None, *, user: str | None = None
    ) -> list[str]:
        """Return what people read, message by message.

        ``user`` adds what is shown to that person alone.
        """
        shown = self.messages(channel, thread_ts)
        for one in self.state.channel(channel).ephemeral:
            if one.only_for == user and not one.deleted and one.root == thread_ts:
                shown.append(one)
        return [visible_text(one) for one in sorted(shown, key=lambda one: one.ts)]

    def whispers(self, user: str, channel: str | None = None) -> list[Message]:
        """Return the ephemeral messages that a person has been shown and still sees."""
        channels = [self.state.channel(channel)] if channel else self.state.channels.values()
        return [
            one
            for where in channels
            for one in where.ephemeral
            if one.only_for == user and not one.deleted
        ]

    # Agents

    def status(self, channel: str, thread_ts: str, app: str | None = None) -> str:
        """Return the status line that a thread shows now; empty for none."""
        said = self._said(channel, thread_ts, app)
        return "" if said is None else status_of(self.state, said)

    def session(self, channel: str, thread_ts: str, app: str | None = None) -> str | None:
        """Return the status of the agent's session in a thread; None when there is none."""
        said = self._said(channel, thread_ts, app)
        return None if said is None else session_of(self.state, said)

    def thread(self, channel: str, thread_ts: str = "", app: str | None = None) -> AgentThread:
        """Return all that an app has said of a thread; of ``""``, of its messages tab."""
        identity = app or next(iter(self.state.apps))
        return self.state.agent_thread(self.state.channel(channel), thread_ts, identity)

    def _said(self, channel: str, thread_ts: str, app: str | None) -> AgentThread | None:
        identity = app or next(iter(self.state.apps))
        return self.state.channel(channel).threads.get((thread_ts, identity))

    # Views

    def modals(self, user: str) -> list[View]:
        """Return the modals a person has open, the top one last."""
        return self.views.stack(user)

    def home(self, user: str, app: str | None = None) -> View | None:
        """Return the home tab that an app has published for a person."""
        return self.views.home(user, app or next(iter(self.state.apps)))

    # Calls and deliveries

    def calls(self, method: str | None = None) -> list[Call]:
        """Return the calls of a method, or all, in the order they came."""
        return [call for call in self.api.calls if method in (None, call.method)]

    def deliveries(
        self, event_type: str | None = None, subtype: str | None = None
    ) -> list[Delivery]:
        """Return the events that were sent to apps, with every attempt."""
        return [
            one
            for one in self.outbound.deliveries
            if event_type in (None, one.event.get("type"))
            and (subtype is None or one.event.get("subtype") == subtype)
        ]

    # Waiting

    async def settled(self, *, patience: float | None = None) -> None:
        """Return when nothing is under way: no call, no request to an app without its answer.

        What waits for the clock, for a gate of the test or on a dead socket does not count, and
        what an app does after it has acknowledged is not known here: see ``until``.
        """
        await self.pulse.until(
            lambda: not self.pulse.under_way and not self.outbound.starting,
            lambda: f"Slack did not settle; under way: {', '.join(self.pulse.under_way)}.",
            patience,
        )

    async def until(
        self, predicate: Callable[[], object], *, patience: float | None = None
    ) -> None:
        """Return when the predicate is true; it is tried whenever anything has happened.

        Raises AssertionError after ``patience`` real seconds, with what there is.
        """
        await self.pulse.until(predicate, self.describe, patience)

    def describe(self) -> str:
        """Return in words what has happened here last, for a test that waits in vain."""
        lines = ["What was waited for did not happen. The last calls:"]
        lines += [
            f"  {one.method} {one.args} -> {one.error or 'ok'}" for one in self.api.calls[-8:]
        ]
        lines.append("The last events:")
        for one in self.outbound.deliveries[-8:]:
            said = [attempt.answer.failure or "ok" for attempt in one.attempts]
            event = one.event
            lines.append(f"  {event.get('type')} {event.get('subtype', '')} -> {said}")
        lines.append(f"Under way: {', '.join(self.pulse.under_way) or 'nothing'}")
        return "\n".join(lines)
