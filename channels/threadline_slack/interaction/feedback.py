"""What people think of an answer: two buttons below it, and an event in the session's log.

https://docs.slack.dev/reference/block-kit/block-elements/feedback-buttons-element
"""

from __future__ import annotations

from typing import Any, Literal, cast

from threadline import Context
from threadline.errors import Forbidden, NotFound
from threadline_slack.bots import Bots
from threadline_slack.interaction.forms import Interaction
from threadline_slack.interaction.interactions import Interactions
from threadline_slack.people import principal, tell

__all__ = ["FEEDBACK", "Feedback", "buttons"]

FEEDBACK = "threadline:feedback"
_WHY = "threadline:feedback_why"
_LABELS = {"positive": "Good answer", "negative": "Bad answer"}
_SIGNS = {"positive": "\U0001f44d", "negative": "\U0001f44e"}
_THANKS = "Thank you, this is noted."


def buttons(session_id: str, turn_id: str, *, plain: bool = False) -> dict[str, Any]:
    """Return the block for the end of a turn's answer.

    ``plain``: ordinary buttons, for a server that does not know those made for this.
    """
    values = {rating: f"{rating}/{session_id}/{turn_id}" for rating in _LABELS}
    if plain:
        return {"type": "actions", "elements": [_plain(*one) for one in values.items()]}
    element: dict[str, Any] = {"type": "feedback_buttons", "action_id": FEEDBACK}
    for rating, label in _LABELS.items():
        element[f"{rating}_button"] = {
            "text": {"type": "plain_text", "text": label},
            "accessibility_label": f"Say that this is a {label.lower()}",
            "value": values[rating],
        }
    return {"type": "context_actions", "elements": [element]}


def _plain(rating: str, value: str) -> dict[str, Any]:
    return {
        "type": "button",
        "text": {"type": "plain_text", "text": _SIGNS[rating], "emoji": True},
        "accessibility_label": _LABELS[rating],
        "action_id": f"{FEEDBACK}:{rating}",
        "value": value,
    }


class Feedback:
    """Records what people press; whoever says no may say why."""

    def __init__(self, bots: Bots, interactions: Interactions) -> None:
        self._bots = bots
        self._interactions = interactions
        for action in (FEEDBACK, *(f"{FEEDBACK}:{rating}" for rating in _LABELS)):
            interactions.own("action", action, self._clicked)
        interactions.own("view", _WHY, self._explained)

    async def _clicked(self, ctx: Context, click: Interaction) -> None:
        rating = click.value.partition("/")[0]
        refused = await self._record(ctx, click, click.value, click.ts, None)
        if refused is not None:
            self._interactions.told(ctx, click, refused)
        else:
            ctx.defer(self._thank(click, asks=rating == "negative"))

    async def _explained(self, ctx: Context, submitted: Interaction) -> Any:
        """Record the words, in place of the click that they belong to."""
        comment = str(submitted.state.get("comment") or "").strip()
        ts, _, value = submitted.metadata.partition(" ")
        refused = await self._record(ctx, submitted, value, ts, comment or None)
        return self._interactions.told(ctx, submitted, refused) if refused is not None else None

    async def _record(
        self, ctx: Context, given: Interaction, value: str, ts: str, comment: str | None
    ) -> str | None:
        """Record feedback durably; return why it cannot be."""
        rating, _, rest = value.partition("/")
        session_id, _, turn_id = rest.partition("/")
        if rating not in _LABELS:
            return "This button does not work any more."
        try:
            await ctx.feedback(
                session_id,
                cast("Literal['positive', 'negative']", rating),
                turn_id=turn_id or None,
                message_ref=ts or None,
                comment=comment,
                principal=principal(given.person, given.user_name),
            )
        except (Forbidden, NotFound) as refused:
            return refused.message
        return None

    async def _thank(self, click: Interaction, *, asks: bool) -> None:
        bot = await self._bots.of(click.team)
        if asks and click.trigger_id:
            view = _question(f"{click.ts} {click.value}")
            await bot.client.views_open(trigger_id=click.trigger_id, view=view)
        else:
            await tell(bot, click, _THANKS)


def _question(metadata: str) -> dict[str, Any]:
    return {
        "type": "modal",
        "callback_id": _WHY,
        "private_metadata": metadata,
        "title": {"type": "plain_text", "text": "What was wrong?"},
        "submit": {"type": "plain_text", "text": "Send"},
        "close": {"type": "plain_text", "text": "Say nothing"},
        "blocks": [
            {
                "type": "input",
                "block_id": "comment",
                "label": {"type": "plain_text", "text": "Your rating is noted. What was wrong?"},
                "element": {
                    "type": "plain_text_input",
                    "action_id": "comment",
                    "multiline": True,
                    "max_length": 3000,
                },
            }
        ],
    }
