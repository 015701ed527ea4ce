"""What happens in conversations: it changes the state, and apps are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from threadline_slack.testing.blocks import identified
from threadline_slack.testing.events import Publisher
from threadline_slack.testing.model import (
    Channel,
    Install,
    Json,
    Message,
    StoredFile,
    User,
)
from threadline_slack.testing.state import State
from threadline_slack.testing.wire import channel_type, is_system, message_json

__all__ = ["Activity", "Author", "CannotReply"]


class CannotReply(Exception):
    """The root of the thread is a post that nobody can reply to."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who posts: a person, or an app by its bot."""

    team: str
    user: str | None = None
    bot_id: str | None = None
    app: str | None = None
    username: str | None = None
    icons: Json | None = None

    @classmethod
    def person(cls, user: User) -> Author:
        """Return a user as an author."""
        return cls(user.team, user.id, user.bot_id, user.app)

    @classmethod
    def bot(cls, install: Install, team: str) -> Author:
        """Return an app's bot as an author."""
        return cls(team, install.bot_user, install.bot_id, install.app.id)


class Activity:
    """Posts, edits, deletions, reactions, files shared, people coming and going."""

    def __init__(self, state: State, publisher: Publisher) -> None:
        self._state = state
        self._publisher = publisher

    def post(
        self,
        channel: Channel,
        author: Author,
        text: str = "",
        *,
        thread_ts: str | None = None,
        broadcast: bool = False,
        subtype: str | None = None,
        ts: str | None = None,
        quiet: bool = False,
        files: Sequence[StoredFile] = (),
        blocks: list[Json] | None = None,
        **rest: Any,
    ) -> Message:
        """Post a message. A thread whose root is not there is a post in the channel itself.

        ``rest`` are further fields of :class:`Message`; ``quiet`` tells no app. Raises
        :class:`CannotReply`.
        """
        root = self._root(channel, thread_ts)
        if root is not None and broadcast:
            subtype = "thread_broadcast"
        if files and subtype is None:
            subtype = "file_share"
        message = Message(
            channel.id,
            ts or self._state.ts(),
            author.team,
            text,
            author.user,
            author.bot_id,
            author.app,
            author.username,
            author.icons,
            subtype,
            root.ts if root is not None else None,
            identified(blocks) if blocks else None,
            files=list(files),
            **rest,
        )
        channel.posts[message.ts] = message
        if root is not None:
            root.replies.append(message.ts)
        for file in files:
            file.channels.append(channel.id)
        if author.app is not None:
            self._answered(channel, author.app, message.root or message.ts)
        if not quiet:
            self._publisher.posted(message)
        return message

    def whisper(
        self, channel: Channel, author: Author, text: str, *, to: str, **rest: Any
    ) -> Message:
        """Show a message to one person only; no app hears of it."""
        message = Message(
            channel.id,
            self._state.ts(),
            author.team,
            text,
            author.user,
            author.bot_id,
            author.app,
            only_for=to,
            **rest,
        )
        message.blocks = identified(message.blocks) if message.blocks else None
        channel.ephemeral.append(message)
        return message

    def edit(self, message: Message, *, by: str | None, **changes: Any) -> Message:
        """Change fields of a message; ``by`` leaves the mark of an edit, None leaves none."""
        before = message_json(self._state, message)
        for name, value in changes.items():
            setattr(message, name, value)
        if by is not None:
            message.edited = {"user": by, "ts": self._state.ts()}
        if message.only_for is None:
            self._publisher.edited(message, before)
        return message

    def delete(self, message: Message) -> None:
        """Delete a message; a root with replies leaves a tombstone, which is an edit to apps."""
        channel = self._state.channels[message.channel]
        before = message_json(self._state, message)
        if message.only_for is not None:
            message.deleted = True
            return
        if message.replies:
            self._entomb(channel, message, before)
            return
        message.deleted = True
        del channel.posts[message.ts]
        channel.deleted.append(message)
        if message.root is not None and (root := channel.posts.get(message.root)):
            root.replies.remove(message.ts)
        self._publisher.deleted(message, before)

    def _entomb(self, channel: Channel, message: Message, before: Json) -> None:
        tomb = Message(
            channel.id,
            message.ts,
            message.team,
            "This message was deleted.",
            user="USLACKBOT",
            subtype="tombstone",
            replies=message.replies,
            extra={"hidden": True},
        )
        channel.posts[message.ts] = tomb
        message.deleted, message.replies = True, []
        channel.deleted.append(message)
        self._publisher.edited(tomb, before)

    def react(self, message: Message, user: User, name: str) -> bool:
        """Add a reaction; returns whether it is new."""
        users = message.reactions.setdefault(name, [])
        if user.id in users:
            return False
        users.append(user.id)
        self._reaction("reaction_added", message, user, name)
        return True

    def unreact(self, message: Message, user: User, name: str) -> bool:
        """Take a reaction back; returns whether it was there."""
        users = message.reactions.get(name, [])
        if user.id not in users:
            return False
        users.remove(user.id)
        if not users:
            del message.reactions[name]
        self._reaction("reaction_removed", message, user, name)
        return True

    def join(self, channel: Channel, user: User, *, inviter: str | None = None) -> None:
        """Make a user a member; channels get a post that says so."""
        if user.id in channel.members:
            return
        channel.members[user.id] = None
        event: Json = {
            "type": "member_joined_channel",
            "user": user.id,
            "channel": channel.id,
            "channel_type": "C" if channel.kind == "channel" else "G",
            "team": user.team,
            "event_ts": self._state.ts(),
        }
        event |= {"inviter": inviter} if inviter else {}
        self._publisher.publish("member_joined_channel", event, channel, team=user.team)
        if channel.kind in ("channel", "group"):
            author = Author(user.team, user.id)
            text = f"<@{user.id}> has joined the channel"
            self.post(channel, author, text, subtype=f"{channel_type(channel)}_join")

    def leave(self, channel: Channel, user: User) -> None:
        """End a membership."""
        channel.members.pop(user.id, None)
        event: Json = {
            "type": "member_left_channel",
            "user": user.id,
            "channel": channel.id,
            "channel_type": "C" if channel.kind == "channel" else "G",
            "team": user.team,
            "event_ts": self._state.ts(),
        }
        self._publisher.publish("member_left_channel", event, channel, team=user.team)

    def _root(self, channel: Channel, thread_ts: str | None) -> Message | None:
        found = channel.posts.get(thread_ts or "")
        if found is not None and found.root is not None:
            found = channel.posts.get(found.root)
        if found is not None and is_system(found):
            raise CannotReply
        return found

    def _answered(self, channel: Channel, app: str, thread: str) -> None:
        """Take the status line away: an app's post in the thread does."""
        said = channel.threads.get((thread, app))
        if said is not None:
            said.status = ""

    def _reaction(self, kind: str, message: Message, user: User, name: str) -> None:
        channel = self._state.channels[message.channel]
        event: Json = {
            "type": kind,
            "user": user.id,
            "reaction": name,
            "item": {"type": "message", "channel": channel.id, "ts": message.ts},
            "event_ts": self._state.ts(),
        }
        event |= {"item_user": message.user} if message.user else {}
        self._publisher.publish(kind, event, channel, team=user.team)
