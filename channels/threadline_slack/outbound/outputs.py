"""What tools show in a conversation beside the answer: artifacts as files, messages as blocks."""

from __future__ import annotations

from pydantic import ValidationError

from threadline import ActionResult, ArtifactTagged, Channel, Event, EventContext
from threadline_slack.bots import Bots
from threadline_slack.message import SlackMessage
from threadline_slack.outbound.thread import content
from threadline_slack.outbound.upload import Upload
from threadline_slack.people import place_of
from threadline_slack.words.compose import compose

__all__ = ["Outputs"]


class Outputs:
    """Shares each artifact that has content, and posts each :class:`SlackMessage`."""

    def __init__(self, channel: Channel, bots: Bots) -> None:
        self._bots = bots
        channel.on("artifact.tagged")(self._tagged)
        channel.on("action.result")(self._resulted)

    async def _tagged(self, event: Event[ArtifactTagged], ctx: EventContext) -> None:
        place = place_of(ctx)
        artifact = await ctx.artifacts.get(event.data.artifact_id)
        if place is None or artifact is None or artifact.size is None:
            return
        body = await ctx.artifacts.read(artifact.id)
        if not body:
            return
        name = artifact.filename or artifact.key
        upload = Upload(
            await self._bots.of(place.team),
            place,
            ctx.kv,
            name=name,
            title=artifact.title or name,
            content=body,
        )
        # An artifact may be told of twice, and each tag is another version of it.
        key = f"artifact/{artifact.id}/{artifact.updated_at}"
        await ctx.post(upload, name, key=key)

    async def _resulted(self, event: Event[ActionResult], ctx: EventContext) -> None:
        place, message = place_of(ctx), _message(event.data)
        if place is None or message is None:
            return
        bot = await self._bots.of(place.team)
        parts = compose(message.text)
        key = f"message/{event.data.call_id}"
        if message.blocks:
            said = content(parts[0].text if parts else "", message.blocks)
            posted = await ctx.post(bot.thread(place), message.text, key=key, metadata=said)
            if "invalid_blocks" not in (posted.failure or ""):
                return
        for number, part in enumerate(parts):
            said = content(part.text, part.blocks)
            name = f"{key}/text/{number}"
            await ctx.post(bot.thread(place), part.text, key=name, metadata=said)


def _message(result: ActionResult) -> SlackMessage | None:
    """Return the message that a tool returned, if it is one."""
    output = result.output
    if result.is_error or not isinstance(output, dict) or output.get("type") != "slack_message":
        return None
    try:
        return SlackMessage.model_validate(output)
    except ValidationError:
        return None
