"""Who speaks and where, as the core knows them; and a word to one person alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from threadline import EventContext, Principal
from threadline_slack.bots import Bot
from threadline_slack.inbound.decide import Person, Place, Rules

if TYPE_CHECKING:
    from threadline_slack.interaction.forms import Interaction

__all__ = ["place_of", "principal", "refusal", "respond", "tell", "whisper"]


def principal(person: Person, name: str | None = None) -> Principal:
    """Return a person as the core knows them, ``slack:<team>:<user>``."""
    attributes = {"team": person.team, "user": person.user}
    marks = {"bot": person.bot, "external": person.external}
    more = {key: True for key, value in marks.items() if value}
    return Principal("slack", f"{person.team}:{person.user}", name, attributes | more)


def refusal(person: Person, rules: Rules) -> str | None:
    """Return why a person may not use the agent, as they are told; None when they may."""
    if person.external and not rules.external:
        return "This agent answers people of its own organisation only."
    return None if rules.admits(person.user) else "You may not use this agent."


def place_of(ctx: EventContext) -> Place | None:
    """Return where the conversation of an event is; None for one that is not in Slack."""
    token = ctx.session_record.continuation_token
    return Place.of(token) if token is not None else None


async def whisper(bot: Bot, place: Place, user: str, text: str) -> None:
    """Tell one person something; only they see it."""
    await bot.client.chat_postEphemeral(
        channel=place.channel, user=user, thread_ts=place.root, text=text
    )


async def respond(bot: Bot, url: str, body: dict[str, Any]) -> bool:
    """Post to a ``response_url``, good five times in half an hour; tell whether that went well.

    https://docs.slack.dev/interactivity/handling-user-interaction
    """
    from slack_sdk.webhook.async_client import AsyncWebhookClient

    hook = AsyncWebhookClient(url, session=bot.client.session, retry_handlers=[])
    return (await hook.send_dict(body)).status_code == 200


async def tell(bot: Bot, interaction: Interaction, text: str) -> None:
    """Tell the person who did something; in the conversation, else however they can be reached.

    A command may be used where the bot is not, so its own address goes first.
    """
    said = {"response_type": "ephemeral", "replace_original": False, "text": text}
    url, place = interaction.response_url, interaction.place
    by_url = url and (place is None or interaction.kind in ("command", "shortcut"))
    if by_url and await respond(bot, url, said):
        return
    if place is not None:
        await whisper(bot, place, interaction.user, text)
    else:
        await bot.client.chat_postMessage(channel=interaction.user, text=text)
