"""What people do in Slack: the side of it that a test plays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from threadline_slack.testing.activity import Author
from threadline_slack.testing.agentuser import AgentUser, Hands
from threadline_slack.testing.forms import action, filled_in, find, values_of
from threadline_slack.testing.interactions import Interaction
from threadline_slack.testing.model import App, Json, Message, User, View
from threadline_slack.testing.wire import elements_of, rich_text

__all__ = ["Bot", "Person"]


class Person(AgentUser):
    """A user at the keyboard. What they do happens at once; what it sets off goes on its way.

    Nobody can do what Slack would not show them: a button that is not there cannot be pressed,
    unless a test says ``stale=True`` for a screen that has not caught up. LookupError says so.
    """

    # Messages

    def post(
        self,
        channel: str,
        text: str,
        *,
        thread_ts: str | None = None,
        broadcast: bool = False,
        me: bool = False,
        ts: str | None = None,
        blocks: list[Json] | None = None,
    ) -> Message:
        """Post a message; ``text`` is as Slack keeps it, so mentions are ``<@U…>``.

        ``broadcast`` sends a reply to the channel too, ``me`` is the ``/me`` command.
        """
        where = self._at(channel)
        return self._hands.activity.post(
            where,
            Author.person(self.user),
            text,
            thread_ts=thread_ts,
            broadcast=broadcast,
            subtype="me_message" if me else None,
            ts=ts,
            blocks=rich_text(text) if blocks is None else blocks,
            client_msg_id=self._hands.state.mint("7d0c1c3e-0000-4000-8000-"),
        )

    def upload(
        self,
        channel: str,
        name: str,
        content: bytes,
        *,
        text: str = "",
        thread_ts: str | None = None,
        access: str = "visible",
    ) -> Message:
        """Post a file; ``access="check_file_info"`` tells apps no more than its id."""
        where = self._at(channel)
        file = self._hands.uploads.make(name, user=self.id, team=self.user.team, content=content)
        file.access = access
        return self._hands.activity.post(
            where,
            Author.person(self.user),
            text,
            thread_ts=thread_ts,
            files=[file],
            blocks=rich_text(text),
        )

    def edit(self, message: Message | str, text: str) -> Message:
        """Edit one's own message."""
        found = self._own(message)
        return self._hands.activity.edit(
            found, by=self.id, text=text, blocks=rich_text(text) or None
        )

    def delete(self, message: Message | str) -> None:
        """Delete a message: one's own, or as an admin anybody's."""
        self._hands.activity.delete(self._message(message))

    def react(self, message: Message | str, name: str) -> None:
        """Add a reaction."""
        self._hands.activity.react(self._message(message), self.user, name)

    def unreact(self, message: Message | str, name: str) -> None:
        """Take a reaction back."""
        self._hands.activity.unreact(self._message(message), self.user, name)

    def invite(self, channel: str, user: str) -> None:
        """Bring somebody, or a bot, into a channel."""
        state = self._hands.state
        self._hands.activity.join(self._at(channel), state.user(user), inviter=self.id)

    def kick(self, channel: str, user: str) -> None:
        """Take somebody, or a bot, out of a channel."""
        self._hands.activity.leave(self._at(channel), self._hands.state.user(user))

    def dm(self, *others: str) -> str:
        """Return the id of the direct or group message with these; alone with the app if none."""
        state = self._hands.state
        bot = state.installed(self._hands.app(), self.user).bot_user
        return state.im(self.id, *(others or (bot,))).id

    # Buttons, modals, shortcuts, commands

    def click(
        self,
        message: Message | str,
        action_id: str,
        value: str | None = None,
        *,
        stale: bool = False,
    ) -> Interaction:
        """Press a button, or choose ``value`` in a select, checkbox, overflow or feedback."""
        found = message if isinstance(message, Message) else self._message(message)
        if not stale:
            self._sees(found)
        element = find(_elements(found), action_id, value, force=stale)
        made = action(element, value, self._hands.state.ts())
        return self._hands.interactions.actions(self.user, found, made)

    def suggest(self, message: Message | str, action_id: str, typed: str) -> Interaction:
        """Type into a select whose options come from the app; its answer has them."""
        found = self._message(message)
        element = find(_elements(found), action_id, None)
        return self._hands.interactions.suggestion(self.user, found, element, typed)

    @property
    def modal(self) -> View:
        """The modal on top of this person's screen."""
        stack = self._hands.views.stack(self.id)
        if not stack:
            raise LookupError(f"{self.id} has no modal open.")
        return stack[-1]

    def click_in_view(
        self, action_id: str, value: str | None = None, *, view: View | None = None
    ) -> Interaction:
        """Use an element of the modal, or of another view such as a home tab."""
        shown = view or self.modal
        element = find(list(elements_of(shown.body["blocks"])), action_id, value)
        made = action(element, value, self._hands.state.ts())
        return self._hands.interactions.view_actions(self.user, shown, made, values_of(shown))

    def submit_view(
        self, values: Mapping[str, Any] | None = None, *, view: View | None = None
    ) -> Interaction:
        """Submit the modal; ``values`` maps an ``action_id`` to what was entered or chosen."""
        shown = view or self.modal
        entered = filled_in(shown, values or {})
        return self._hands.interactions.submission(self.user, shown, entered)

    def close_view(self, *, all_: bool = False) -> Interaction | None:
        """Close the modal, or the whole stack; the app hears of it if it wanted to."""
        shown = self.modal
        told = self._hands.interactions.closed(self.user, shown, cleared=all_)
        for below in self._hands.views.stack(self.id) if all_ else []:
            below.open = False
        return told

    def command(self, command: str, text: str = "", *, channel: str) -> Interaction:
        """Send a slash command; Slack knows none in threads."""
        where = self._at(channel)
        app = self._hands.app()
        for one in self._hands.state.apps.values():
            if one.commands is not None and command in one.commands:
                app = one
        if app.commands is not None and command not in app.commands:
            raise LookupError(f"No app has the command {command}; see App.commands.")
        return self._hands.interactions.command(self.user, app, where, command, text)

    def shortcut(self, callback_id: str, app: App | None = None) -> Interaction:
        """Use a global shortcut."""
        return self._hands.interactions.shortcut(self.user, app or self._hands.app(), callback_id)

    def message_action(
        self, message: Message | str, callback_id: str, app: App | None = None
    ) -> Interaction:
        """Use a shortcut of a message's menu."""
        found = self._message(message)
        return self._hands.interactions.message_action(
            self.user, app or self._hands.app(), callback_id, found
        )

    # Parts

    def _message(self, message: Message | str) -> Message:
        ts = message if isinstance(message, str) else message.ts
        found = self._hands.state.message(ts)
        self._sees(found)
        return found

    def _sees(self, message: Message) -> None:
        self._at(message.channel)
        if message.deleted or message.only_for not in (None, self.id):
            raise LookupError(f"{self.id} does not see the message {message.ts}.")

    def _own(self, message: Message | str) -> Message:
        found = self._message(message)
        if found.user != self.id:
            raise LookupError(f"The message {found.ts} is not by {self.id}.")
        return found


class Bot:
    """Another app's bot, which posts: with its user, or ``classic``, with a bot's id only."""

    def __init__(self, user: User, hands: Hands) -> None:
        self.user = user
        self._hands = hands

    def post(
        self,
        channel: str,
        text: str = "",
        *,
        thread_ts: str | None = None,
        classic: bool = False,
        blocks: list[Json] | None = None,
        attachments: list[Json] | None = None,
    ) -> Message:
        """Post; what is in attachments or blocks need not be in the text."""
        where = self._hands.state.channel(channel)
        author = Author(
            self.user.team,
            None if classic else self.user.id,
            self.user.bot_id,
            self.user.app,
            self.user.name if classic else None,
        )
        return self._hands.activity.post(
            where,
            author,
            text,
            thread_ts=thread_ts,
            subtype="bot_message" if classic else None,
            blocks=blocks,
            attachments=attachments,
        )

    def edit(self, message: Message, **changes: Any) -> Message:
        """Change a message, as alerts that are resolved do."""
        return self._hands.activity.edit(message, by=None, **changes)


def _elements(message: Message) -> list[Json]:
    blocks = list(message.blocks or [])
    for attachment in message.attachments or []:
        blocks += attachment.get("blocks", [])
    return list(elements_of(blocks))
