"""Who speaks and where, as the core knows them; and a word to one person alone."""

from __future__ import annotations

from threadline import EventContext, Principal
from threadline_slack.bots import Bot
from threadline_slack.inbound import Person, Place

__all__ = ["place_of", "principal", "whisper"]


def principal(person: Person, name: str | None = None) -> Principal:
    """Return a person as the core knows them, ``slack:<team>:<user>``."""
    attributes = {"team": person.team, "user": person.user}
    marks = {"bot": person.bot, "external": person.external}
    more = {key: True for key, value in marks.items() if value}
    return Principal("slack", f"{person.team}:{person.user}", name, attributes | more)


def place_of(ctx: EventContext) -> Place | None:
    """Return where the conversation of an event is; None for one that is not in Slack."""
    token = ctx.session_record.continuation_token
    return Place.of(token) if token is not None else None


async def whisper(bot: Bot, place: Place, user: str, text: str) -> None:
    """Tell one person something; only they see it."""
    await bot.client.chat_postEphemeral(
        channel=place.channel, user=user, thread_ts=place.root, text=text
    )
