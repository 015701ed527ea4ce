"""What a message does to a busy session, and that an acknowledged one is never lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from threadline.testing.conformance.stage import (
    Check,
    NotApplicable,
    Stage,
    Told,
    check,
    expect,
)
from threadline.testing.harness import Stage as Place

__all__ = ["CHECKS"]


@check("admission.declared", "a message is admitted as the channel declares")
async def declared(stage: Stage) -> None:
    told = await stage.tell(stage.names.conversation())
    admission = told.accepted.delivery.admission
    expect(
        admission == stage.admission,
        f"An ordinary message was sent with admission {admission!r}; the channel declares "
        f"{stage.admission!r}. Leave admission= out of ctx.send(), or set the kit's admission.",
    )


@check(
    "admission.coalesce", "a message to a busy session waits: the next boundary or turn takes it"
)
async def coalesce(stage: Stage) -> None:
    if stage.admission != "coalesce":
        raise NotApplicable("the channel's messages preempt")
    stage.harness.calls = 1
    stage.harness.hold("call")
    stage.harness.hold("answer")
    conversation = stage.names.conversation()
    first = await stage.tell(conversation)
    await _at(stage, "call")
    steered = await stage.tell(conversation)
    await stage.host.until(lambda: stage.host.agent().core.prepared(steered.session_id))
    stage.harness.release("call")
    await _at(stage, "answer")
    late = await stage.tell(conversation)
    await stage.rest()
    expect(
        stage.harness.cancelled == 0 and not stage.session(first).events("turn.failed"),
        "A message to a busy session interrupted its turn, though the channel coalesces.",
    )
    _outcome(stage, steered, "steered")
    _outcome(stage, late, "prompted")


@check("admission.preempt", "a message to a busy session interrupts its turn, and is answered next")
async def preempt(stage: Stage) -> None:
    if stage.admission != "preempt":
        raise NotApplicable("the channel's messages coalesce")
    stage.harness.hold("answer")
    conversation = stage.names.conversation()
    first = await stage.tell(conversation)
    await _at(stage, "answer")
    second = await stage.tell(conversation)
    expect(
        await _interrupted(stage),
        "A message to a busy session left its turn alone, though the channel preempts.",
    )
    await stage.rest()
    codes = [event["data"].get("code") for event in stage.session(first).events("turn.failed")]
    expect(codes == ["preempted"], f"The interrupted turn ended with {codes}, not ['preempted'].")
    _outcome(stage, second, "prompted")


async def _interrupted(stage: Stage) -> bool:
    try:
        await stage.host.until(lambda: stage.harness.cancelled)
    except AssertionError:
        return False
    return True


async def _at(stage: Stage, place: Place) -> None:
    gate = stage.harness.gates[place]
    await stage.host.until(lambda: gate.waiting, f"a turn at the gate {place!r}")


def _outcome(stage: Stage, told: Told, wanted: str) -> None:
    found = stage.session(told).outcomes(told.delivery_id)
    expect(found == [wanted], f"A message to a busy session was {found}, not ['{wanted}'].")


@check("outcome.each", "each of many messages has one outcome, in the order of their arrival")
async def each(stage: Stage) -> None:
    stage.harness.calls = 1
    stage.harness.hold("start")
    conversations = [stage.names.conversation() for _ in range(2)]
    told = [await stage.tell(conversation) for _ in range(4) for conversation in conversations]
    await stage.rest()
    for one in told:
        outcomes = stage.session(one).outcomes(one.delivery_id)
        expect(len(outcomes) == 1, f"A message has {len(outcomes)} outcomes: {outcomes}.")
        kept = stage.host.agent().store.delivery(one.delivery_id, channel=stage.channel.id)
        expect(kept and kept[0].state != "accepted", "The ledger does not say what became of it.")
    for conversation in conversations:
        sent = [one.delivery_id for one in told if one.conversation == conversation]
        session = stage.session(next(one for one in told if one.conversation == conversation))
        named = _named(session.events(), set(sent))
        expect(named == sent, f"Messages sent as {sent} reached the agent as {named}.")


def _named(events: Sequence[dict[str, Any]], ids: set[str]) -> list[str]:
    """Return the delivery ids in the order in which the log gives them outcomes."""
    named: list[str] = []
    for event in events:
        data = event["data"]
        named += data.get("deliveryIds") or []
        if event["type"] == "nudge.delivered":
            named.append(str(data.get("deliveryId")))
    return [delivery_id for delivery_id in named if delivery_id in ids]


@check("durable.power_cut", "an acknowledged message survives a power cut")
async def power_cut(stage: Stage) -> None:
    # Slow commits give an answer that does not wait for its message the time to come first.
    stage.host.disk.delay, stage.host.disk.slow = 0.03, {"commit"}
    told = await stage.tell(stage.names.conversation())
    stage.host.disk.delay = 0.0
    await stage.host.crash(power_cut=True)
    await stage.rest()
    outcomes = stage.session(told).outcomes(told.delivery_id)
    expect(
        len(outcomes) == 1, f"After a power cut an acknowledged message has outcomes {outcomes}."
    )


@check("durable.full_disk", "a message that cannot be stored is refused with 5xx, and taken later")
async def full_disk(stage: Stage) -> None:
    conversation = stage.names.conversation()
    await stage.tell(conversation)
    await stage.rest()
    inbound = stage.kit.inbound(conversation, stage.names.ping(), stage.names.delivery())
    stage.host.disk.full = True
    before = len(stage.fresh)
    answer = await stage.send(inbound, may_fail=True)
    stage.host.disk.full = False
    await stage.host.elapse(10.0)
    expect(
        answer.status >= 500,
        f"A message that could not be stored was answered with {answer.status}, so the service "
        "will not deliver it again. Let what ctx.send() raises leave the route.",
    )
    expect(len(stage.fresh) == before, "A message was refused, and yet accepted.")
    told = await stage.tell(conversation, inbound=inbound)
    await stage.rest()
    outcomes = stage.session(told).outcomes(told.delivery_id)
    expect(len(outcomes) == 1, f"Delivered again, the message has outcomes {outcomes}.")


CHECKS: Sequence[Check] = (declared, coalesce, preempt, each, power_cut, full_disk)
