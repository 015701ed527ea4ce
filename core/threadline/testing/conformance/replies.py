"""What is visible at the outside target: every answer, once, in its place, whatever fails."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from threadline.testing.conformance.stage import Check, Stage, Told, check, expect

__all__ = ["CHECKS"]

_RETRY_AFTER = 30.0
_USE_POST = (
    "Post with ctx.post(target, text) in the handler of message.completed: it keeps an intent "
    "before and a receipt after, and looks at the target before it sends again."
)


@check("replies.once", "an answer is visible once, in its conversation", hooks=["posted"])
async def once(stage: Stage) -> None:
    one, two = stage.names.conversation(), stage.names.conversation()
    told = [await stage.tell(one), await stage.tell(two)]
    for message, elsewhere in zip(told, (two, one), strict=True):
        await stage.reply(message)
        await stage.once(message, "One message has one answer.")
        strays = [text for text in await stage.posts(elsewhere) if message.pong in text]
        expect(not strays, "An answer is visible in another conversation.")


@check(
    "replies.order", "answers are visible in the order in which they were given", hooks=["posted"]
)
async def order(stage: Stage) -> None:
    conversation = stage.names.conversation()
    told = []
    for count in range(1, 4):
        told.append(await stage.tell(conversation))
        await stage.session(told[0]).event("turn.completed", count)
    for message in told:
        await stage.reply(message)
    text = "\n".join(await stage.posts(conversation))
    places = [text.index(message.pong) for message in told]
    expect(places == sorted(places), f"Answers are visible in another order:\n{text}")


@check("replies.failure", "a turn that fails says so at the target", hooks=["posted"])
async def failure(stage: Stage) -> None:
    conversation = stage.names.conversation()
    stage.harness.failures.append(RuntimeError("the model broke"))
    await stage.tell(conversation)
    await stage.rest()
    with contextlib.suppress(AssertionError):
        await stage.host.until(lambda: stage.posts(conversation))
    expect(
        await stage.posts(conversation),
        "A turn failed, and whoever asked saw nothing. Handle turn.failed, and say what happened.",
    )


@check(
    "replies.recorded",
    "an answer recorded before a crash is visible once after it",
    hooks=["posted"],
)
async def recorded(stage: Stage) -> None:
    told = await _die(stage, "turn.completed")
    await stage.host.crash()
    why = f"The host died between record and post. {_USE_POST}"
    await stage.reply_in_time(told, 60.0, why)
    await stage.once(told, why)


@check(
    "replies.receipt",
    "an answer posted just before a crash is visible once after it",
    hooks=["posted"],
)
async def receipt(stage: Stage) -> None:
    told = await _die(stage, "receipt")
    await stage.host.crash()
    await stage.rest()
    why = f"The host died between post and receipt. {_USE_POST}"
    await stage.reply_in_time(told, 60.0, why)
    if stage.kit.finds:
        await stage.once(told, why)


@check(
    "replies.resumed",
    "a turn cut off after its answer and resumed has one answer",
    hooks=["posted"],
)
async def resumed(stage: Stage) -> None:
    stage.harness.hold("end")
    told = await _die(stage, "message.completed")
    stage.harness.release()
    await stage.host.crash()
    await stage.rest()
    why = f"The turn was resumed, and answered again. {_USE_POST}"
    await stage.reply_in_time(told, 60.0, why)
    await stage.once(told, why)


async def _die(stage: Stage, write: str) -> Told:
    """Send a message and let the host die at a write; without that write, when all is handled."""
    host, witness = stage.host, stage.host.witness
    witness.forget_places = True
    witness.die_at = write
    told = await stage.tell(stage.names.conversation())
    agent, session = host.agent(), stage.session(told)

    async def over() -> bool:
        if host.disk.dead:
            return True
        ended = session.events("turn.completed") and agent.dispatcher.caught_up(told.session_id)
        return bool(ended) and await stage.shown(told) > 0

    await host.until(over, f"an end of the turn that answers {told.text!r}")
    await host.kill()
    witness.forget_places, witness.die_at = False, None
    return told


@check(
    "backoff.retry_after",
    "a target that says 429 is left alone as long as it asks, then has the answer once",
    hooks=["posted", "fail_next"],
)
async def retry_after(stage: Stage) -> None:
    stage.kit.fail_next(429, _RETRY_AFTER)
    told = await stage.tell(stage.names.conversation())
    await _waiting(stage, told)
    for second in range(int(_RETRY_AFTER) - 1):
        expect(
            not await stage.shown(told),
            f"The target asked for {_RETRY_AFTER:g} s of peace and got a post after {second} s. "
            "Raise TryAgain(retry_after=…) in the target's send(), as TryAgain.when() does.",
        )
        await stage.host.elapse(1.0)
    await stage.reply_in_time(told, 120.0, f"The target took no post for {_RETRY_AFTER:g} s.")
    await stage.once(told, "A refused post was not posted.")


@check(
    "backoff.error",
    "an answer that the target failed to take is tried again, and visible once",
    hooks=["posted", "fail_next"],
)
async def error(stage: Stage) -> None:
    stage.kit.fail_next(503, None)
    told = await stage.tell(stage.names.conversation())
    await _waiting(stage, told)
    await stage.reply_in_time(
        told,
        300.0,
        "The target answered 503 once. Raise TryAgain in the target's send() for what may pass.",
    )
    await stage.once(told, "A post that failed is tried again, not doubled.")


@check(
    "backoff.refused",
    "a post that the target refuses for good holds up no other",
    hooks=["posted", "fail_next"],
)
async def refused(stage: Stage) -> None:
    conversation = stage.names.conversation()
    stage.kit.fail_next(403, None)
    first = await stage.tell(conversation)
    await _waiting(stage, first)
    for place in (stage.names.conversation(), conversation):
        await stage.reply_in_time(
            await stage.tell(place), 30.0, "The post before it was refused for good."
        )


async def _waiting(stage: Stage, told: Told) -> None:
    """Give the refused post the time to be made; the checks hold also when it is made later."""
    await stage.session(told).event("turn.completed")
    agent = stage.host.agent()

    def settled() -> bool:
        # One sleeper is the core's own.
        return stage.clock.sleepers > 1 or agent.dispatcher.caught_up(told.session_id)

    with contextlib.suppress(AssertionError):
        await stage.host.until(settled, seconds=1.0)


CHECKS: Sequence[Check] = (
    once,
    order,
    failure,
    recorded,
    receipt,
    resumed,
    retry_after,
    error,
    refused,
)
