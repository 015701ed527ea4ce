"""Commands and shortcuts that the agent answers by itself: ask, stop, status, help.

Slack knows no slash command in a thread, so there ``!deploy`` is what ``/deploy`` is elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from threadline import Context, Session
from threadline_slack.bots import Bot, Bots
from threadline_slack.inbound.decide import Ask, Place
from threadline_slack.inbound.gather import metadata
from threadline_slack.interaction.acting import InteractionContext
from threadline_slack.interaction.declared import OURS
from threadline_slack.interaction.forms import Interaction
from threadline_slack.interaction.interactions import Interactions
from threadline_slack.outbound.thread import error_of
from threadline_slack.words.text import command, is_stop, read
from threadline_slack.words.tokens import escape

__all__ = ["ASK", "Commands"]

ASK = f"{OURS}ask"
"""The callback id of the message shortcut that asks the agent about a message."""

_RUNNING = frozenset({"running", "queued", "parked"})
_SAYS = {"queued": "waits for a free slot", "parked": "waits for an approval"}
_NOT_HERE = (
    "I cannot post here (`{error}`). Invite me with `/invite`, or write me a direct message."
)
_AWAY = frozenset({"channel_not_found", "is_archived", "not_in_channel", "restricted_action"})


class Commands:
    """Answers what no handler is declared for."""

    def __init__(self, interactions: Interactions, bots: Bots) -> None:
        self._interactions = interactions
        self._bots = bots
        self._own: Context | None = None
        interactions.fallback = self._ask
        interactions.unhandled = self._slash
        interactions.serve("shortcut", ASK, self._ask_about)

    def open(self, ctx: Context) -> None:
        """Begin; ``ctx`` acts as the channel, which owns the sessions."""
        self._own = ctx

    # In threads

    async def said(self, ctx: Context, ask: Ask, seen: Callable[[str], bool]) -> bool:
        """Take a message ``!name …``; False for what is to be asked as it stands.

        ``seen`` tells whether this was heard before: a post may come twice.
        """
        found = command(escape(ask.text)) if not ask.person.bot and ask.watch is None else None
        if found is None:
            return False
        interaction = Interaction(
            kind="command",
            name=f"/{found.name}",
            id=f"{ask.delivery_id}:!",
            user=ask.person.user,
            team=ask.place.team,
            home=ask.person.team,
            external=ask.person.external,
            channel=ask.place.channel,
            ts=ask.ts,
            token=ask.place.token,
            value=found.args,
        )
        handler = self._interactions.declared.handler("command", interaction.name)
        if handler is not None:
            await self._interactions.run(ctx, handler, interaction)
            return True
        if found.name not in ("help", "status"):
            return False
        if not seen(interaction.id):
            text = await self._status(ctx, interaction) if found.name == "status" else self._help()
            self._interactions.told(ctx, interaction, text)
        return True

    # Slash commands

    async def _slash(self, ctx: Context, used: Interaction) -> Any:
        """Answer a slash command at once, or have the agent asked."""
        word = used.value.casefold()
        if word in ("", "help"):
            return self._interactions.told(ctx, used, self._help(used.name))
        if word == "status":
            return self._interactions.told(ctx, used, await self._status(ctx, used))
        if is_stop(used.value):
            return await self._stop_here(ctx, used)
        return await self._interactions.run(ctx, self._ask, used)

    async def _stop_here(self, ctx: Context, used: Interaction) -> Any:
        running = self._running(used)
        if not running:
            return self._interactions.told(ctx, used, "Nothing is running here.")
        if len(running) > 1:
            said = f"{len(running)} conversations run here. Write `stop` in the thread you mean."
            return self._interactions.told(ctx, used, said)
        stopped = await ctx.stop(running[0].id, clear_pending=True)
        said = "Stopped." if stopped else "Nothing is running here."
        return self._interactions.told(ctx, used, said)

    async def _ask(self, ctx: InteractionContext, used: Interaction) -> None:
        """Ask the agent in the thread of a message that shows the question."""
        said = read({"text": used.value}).text
        try:
            await ctx.ask(said)
        except Exception as error:
            if error_of(error) not in _AWAY:
                raise
            await ctx.respond(_NOT_HERE.format(error=error_of(error)))

    # The message shortcut

    async def _ask_about(self, ctx: InteractionContext, used: Interaction) -> None:
        """Ask the agent about a message, in its thread."""
        place, message = used.place, used.raw.get("message")
        bot = await self._bots.of(used.team)
        if place is None or not isinstance(message, dict):
            await ctx.respond("There is nothing to ask about.")
        elif (problem := await _absent(bot, place)) is not None:
            await ctx.respond(_NOT_HERE.format(error=problem))
        else:
            said = read(message)
            author = str(message.get("user") or message.get("username") or "an app")
            about = said.text or "(a message without words)"
            text = f"What about this message of {author}?\n\n{about}"
            known = metadata(Ask(place, used.ts, used.person, text, said, True))
            await ctx.send(text, metadata=known)

    # What runs

    def _running(self, used: Interaction) -> list[Session]:
        """Return what runs where a command was used, in a thread or in a channel."""
        sessions = self._own.sessions() if self._own is not None else []
        found = []
        for session in sessions:
            token = session.continuation_token if session.status in _RUNNING else None
            place = Place.of(token) if token is not None else None
            if place is not None and used.token in (None, token) and place.channel == used.channel:
                found.append(session)
        return found

    async def _status(self, ctx: Context, used: Interaction) -> str:
        running = self._running(used)
        lines = [await _described(session, ctx.clock.now()) for session in running]
        return "\n".join(lines) or "Nothing is running here."

    def _help(self, name: str = "") -> str:
        lines = [f"`{name} <question>` asks me; the answer comes in a thread."] if name else []
        lines += [
            "Mention me in a channel, or write me a direct message; go on in the thread.",
            "`stop` in a thread stops me, `!status` says what I do.",
        ]
        for declared, one in sorted(self._interactions.declared.commands.items()):
            if one.handler is not None:
                about = escape(one.description or "")
                lines.append(f"`{declared}` (in a thread `!{declared[1:]}`): {about}".rstrip(": "))
        return "\n".join(lines)


async def _described(session: Session, now: datetime) -> str:
    """Say what a session does, and for how long."""
    doing, since = "", None
    async for event in session.recorded("turn.started", "turn.queued", "actions.requested"):
        if event["type"] == "actions.requested":
            names = dict.fromkeys(str(call.get("toolName")) for call in event["data"]["calls"])
            doing = ", ".join(names)
        else:
            doing, since = "", datetime.fromisoformat(event["at"])
    status = session.status
    text = _SAYS.get(status, f"is using {escape(doing)}" if doing else "is working")
    waited = f" since {_age((now - since).total_seconds())}" if since is not None else ""
    return f"The agent {text}{waited}."


def _age(seconds: float) -> str:
    minutes = int(max(seconds, 0.0)) // 60
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min" if minutes else "less than a minute"


async def _absent(bot: Bot, place: Place) -> str | None:
    """Return why the bot cannot answer in a channel; None when it can."""
    try:
        answer = await bot.client.conversations_info(channel=place.channel)
    except Exception as error:
        if error_of(error) not in _AWAY:
            raise
        return error_of(error)
    channel = answer.get("channel") or {}
    direct = channel.get("is_im") or channel.get("is_mpim")
    return None if direct or channel.get("is_member") else "not_in_channel"
