"""What people do with agents: assistant threads, the app's home, the stop button."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from threadline_slack.testing.activity import Activity, Author
from threadline_slack.testing.events import Publisher
from threadline_slack.testing.interactions import Interactions
from threadline_slack.testing.methods.agents import STOP_EVENT, session_of
from threadline_slack.testing.model import App, Channel, Json, Message, User
from threadline_slack.testing.state import State
from threadline_slack.testing.uploads import Uploads
from threadline_slack.testing.views import Views

__all__ = ["AgentUser", "Hands"]


@dataclass(slots=True)
class Hands:
    """What people act with."""

    state: State
    activity: Activity
    publisher: Publisher
    interactions: Interactions
    views: Views
    uploads: Uploads
    app: Callable[[], App]


class AgentUser:
    """The part of a person that uses agents."""

    def __init__(self, user: User, hands: Hands) -> None:
        self.user = user
        self._hands = hands

    @property
    def id(self) -> str:
        """The user's id."""
        return self.user.id

    def open_assistant_thread(self, context: str | None = None, app: App | None = None) -> Message:
        """Open a new assistant thread while looking at the channel ``context``; returns its root.

        Post into it with ``post(root.channel, text, thread_ts=root.ts)``.
        """
        app = app or self._hands.app()
        state = self._hands.state
        install = state.installed(app, self.user)
        channel = state.im(self.id, install.bot_user)
        author = Author.bot(install, self.user.team)
        root = self._hands.activity.post(
            channel,
            author,
            "New Assistant Thread",
            subtype="assistant_app_thread",
            quiet=True,
            extra={"assistant_app_thread": {"title": "New chat", "title_blocks": []}},
        )
        self._assistant("assistant_thread_started", channel, root, app, context)
        return root

    def look_at(self, root: Message, context: str | None, app: App | None = None) -> None:
        """Move on to another channel while an assistant thread is open."""
        app = app or self._hands.app()
        channel = self._hands.state.channel(root.channel)
        self._assistant("assistant_thread_context_changed", channel, root, app, context)

    def open_home(self, tab: str = "home", app: App | None = None) -> None:
        """Open the app's home, at its home or its messages tab."""
        app = app or self._hands.app()
        bot = self._hands.state.installed(app, self.user).bot_user
        channel = self._hands.state.im(self.id, bot)
        event: Json = {
            "type": "app_home_opened",
            "user": self.id,
            "channel": channel.id,
            "tab": tab,
            "event_ts": self._hands.state.ts(),
        }
        self._hands.publisher.publish(
            "app_home_opened", event, channel, team=self.user.team, only=app.id
        )

    def press_stop(self, channel: str, thread_ts: str, app: App | None = None) -> list[str]:
        """Press the stop button of an agent that works in a thread; returns the streams it ended.

        The button is there while the session is ``processing`` and the app wants to hear of it.
        """
        app = app or self._hands.app()
        state = self._hands.state
        where = self._at(channel)
        said = where.threads.get((thread_ts, app.id))
        wanted = app.events is None or STOP_EVENT in app.events
        if said is None or session_of(state, said) != "processing" or not wanted:
            raise LookupError(f"There is no stop button in the thread {thread_ts}.")
        stopped = self._streams(where, thread_ts, app)
        for message in stopped:
            if message.stream is not None:
                message.stream.state = "stopped"
        ended = [message.ts for message in stopped]
        event: Json = {
            "type": STOP_EVENT,
            "channel": where.id,
            "thread_ts": thread_ts,
            "user": self.id,
            "streaming_message_ts": ended,
            "event_ts": state.ts(),
        }
        self._tell(app, STOP_EVENT, event, where)
        return ended

    def rename_session(
        self, channel: str, thread_ts: str, title: str, app: App | None = None
    ) -> None:
        """Give an agent's session another title."""
        app = app or self._hands.app()
        where = self._at(channel)
        said = self._hands.state.agent_thread(where, thread_ts, app.id)
        event: Json = {
            "type": "agent_session_title_changed",
            "channel": where.id,
            "thread_ts": thread_ts,
            "team_id": self.user.team,
            "title": title,
            "user": self.id,
            "event_ts": self._hands.state.ts(),
        }
        event |= {"previous_title": said.title} if said.title else {}
        said.title = title
        self._tell(app, "agent_session_title_changed", event, where)

    # Parts

    def _assistant(
        self, kind: str, channel: Channel, root: Message, app: App, context: str | None
    ) -> None:
        seen: Json = {}
        if context is not None:
            team = self._hands.state.teams[self.user.team]
            seen = {
                "channel_id": context,
                "team_id": team.id,
                "enterprise_id": team.enterprise,
            }
        event: Json = {
            "type": kind,
            "assistant_thread": {
                "user_id": self.id,
                "context": seen,
                "channel_id": channel.id,
                "thread_ts": root.ts,
            },
            "event_ts": self._hands.state.ts(),
        }
        self._tell(app, kind, event, channel)

    def _tell(self, app: App, name: str, event: Json, channel: Channel) -> None:
        self._hands.publisher.publish(name, event, channel, team=self.user.team, only=app.id)

    def _streams(self, channel: Channel, thread_ts: str, app: App) -> list[Message]:
        posts = [one for one in channel.posts.values() if thread_ts in (one.root, one.ts)]
        for one in posts:
            self._hands.state.expire(one)
        return [one for one in posts if one.streaming and one.app == app.id]

    def _at(self, channel: str) -> Channel:
        """Return a conversation this person is in."""
        found = self._hands.state.channel(channel)
        if self.id not in found.members:
            raise LookupError(f"{self.id} is not a member of {found.id}; invite them first.")
        return found
