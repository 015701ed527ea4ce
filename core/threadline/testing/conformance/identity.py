"""Which session a message reaches, and that a message sent again is the same message."""

from __future__ import annotations

from collections.abc import Sequence

from threadline.testing.conformance.stage import Check, NotApplicable, Stage, check, expect

__all__ = ["CHECKS"]

_AT_ONCE = 6


@check("tokens.same", "a conversation is one session, another conversation another")
async def same(stage: Stage) -> None:
    one, two = stage.names.conversation(), stage.names.conversation()
    first = await stage.tell(one)
    await stage.rest()
    other = await stage.tell(two)
    again = await stage.tell(one)
    expect(
        again.session_id == first.session_id,
        "The second message of a conversation started another session. The continuation token must "
        "be made from what the conversation always has, such as its thread or ticket id.",
    )
    expect(
        other.session_id != first.session_id,
        "Two conversations share one session: their continuation tokens are equal.",
    )


@check("tokens.restart", "a conversation is the same session after a restart")
async def restart(stage: Stage) -> None:
    conversation = stage.names.conversation()
    first = await stage.tell(conversation)
    await stage.rest()
    await stage.host.restart()
    again = await stage.tell(conversation)
    expect(
        again.session_id == first.session_id,
        "After a restart a conversation started another session. Do not keep tokens in memory; "
        "make them from the request, or keep what they are made from in ctx.kv.",
    )


@check("tokens.concurrent", "first messages that come at once are one session")
async def concurrent(stage: Stage) -> None:
    if stage.channel.tokens.rotates:
        raise NotApplicable("the tokens rotate, so a first message always starts a session")
    conversation = stage.names.conversation()
    inbounds = [
        stage.kit.inbound(conversation, stage.names.ping(), stage.names.delivery())
        for _ in range(_AT_ONCE)
    ]
    accepted = await stage.tell_at_once(inbounds)
    sessions = {result.session.id for result in accepted}
    expect(len(accepted) == _AT_ONCE, f"Of {_AT_ONCE} messages {len(accepted)} were accepted.")
    expect(
        len(sessions) == 1,
        f"{_AT_ONCE} first messages of one conversation made {len(sessions)} sessions. Give "
        "ctx.send() the token and let it find or make the session.",
    )


_NO_ID = (
    "Give ctx.send() the service's own id of the message as delivery_id=; the store then knows it "
    "again, also after a restart."
)


@check("dedupe.again", "a message delivered again is acknowledged, and changes nothing")
async def again(stage: Stage) -> None:
    told = await stage.tell(stage.names.conversation())
    await stage.rest()
    answer = await stage.send(told.inbound)
    expect(
        answer.ok,
        f"A message delivered again was answered with {answer.status}, not 2xx: the service would "
        "deliver it for ever.",
    )
    await _one_outcome(stage, told.delivery_id)


@check("dedupe.concurrent", "a message delivered several times at once counts once")
async def twins(stage: Stage) -> None:
    inbound = stage.kit.inbound(
        stage.names.conversation(), stage.names.ping(), stage.names.delivery()
    )
    accepted = await stage.tell_at_once([inbound] * _AT_ONCE)
    expect(accepted, "Of twins that came at once none was accepted.")
    await _one_outcome(stage, accepted[0].delivery.delivery_id)


@check("dedupe.restart", "a message delivered again after a crash counts once")
async def after_crash(stage: Stage) -> None:
    told = await stage.tell(stage.names.conversation())
    await stage.rest()
    await stage.host.crash()
    answer = await stage.send(told.inbound)
    expect(answer.ok, f"A message delivered again after a crash got {answer.status}.")
    await _one_outcome(stage, told.delivery_id)


async def _one_outcome(stage: Stage, delivery_id: str) -> None:
    await stage.rest()
    fresh = stage.fresh
    expect(len(fresh) == 1, f"One message was accepted {len(fresh)} times. {_NO_ID}")
    outcomes = stage.host.session(fresh[0].session.id).outcomes(delivery_id)
    expect(len(outcomes) == 1, f"One message has {len(outcomes)} outcomes: {outcomes}.")


CHECKS: Sequence[Check] = (same, restart, concurrent, again, twins, after_crash)
