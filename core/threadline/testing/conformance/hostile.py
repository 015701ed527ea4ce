"""Text, ids and bodies that are meant to break it: refused with 4xx, or carried as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from threadline.testing.conformance.stage import Check, NotApplicable, Stage, check, expect
from threadline.testing.inbound import Inbound

__all__ = ["BODIES", "CHECKS", "IDS", "TEXTS"]

TEXTS: Mapping[str, str] = {
    "a NUL": "ping\x00pong",
    "a lone surrogate": "ping\ud800pong",
    "control characters": "ping\x01\x07\x1b[31m\x7fpong",
    "line separators": "ping\u2028\u2029\x85pong",
    "direction marks": "ping\u202e\u2066pong\u200b",
    "a combined emoji": "\U0001f469\u200d\U0001f4bb\ufe0f e\u0301",
    "mentions": "@channel @here @everyone <!channel> <@U123> @all",
    "markup": "<script>alert(1)</script> **b** `c` [x](javascript:y) &amp; %00 ${x} {{y}}",
    "a closed code fence": "```\n}]}'\"\\\n```",
    "megabytes": "ping " * 500_000,
    "only blanks": " \t\n ",
    "nothing": "",
}
_MAY_BE_DROPPED = ("only blanks", "nothing")

IDS: Mapping[str, str] = {
    "a very long id": "d" * 5000,
    "an id of another script": "д-ß-漢",
    "an id with blanks": " d 1 ",
    "an id like a path": "../../etc/passwd",
    "an id like SQL": "d'; DROP TABLE deliveries; --",
    "an empty id": "",
}

BODIES: Mapping[str, bytes] = {
    "no body": b"",
    "no JSON": b"{",
    "null": b"null",
    "a list": b"[]",
    "an empty object": b"{}",
    "a string": b'"text"',
    "a number": b"1e999",
    "no UTF-8": b'{"text": "\xff\xfe"}',
    "deep nesting": b"[" * 100_000,
    "a form": b"payload=%7B%22a%22%3A+1%7D&text=hi",
    "binary": bytes(range(256)),
}


def _made(stage: Stage, text: str, delivery_id: str) -> Inbound | None:
    """Return the request, or None when the kit cannot make it: then nobody can send it."""
    try:
        inbound = stage.kit.inbound(stage.names.conversation(), text, delivery_id)
    except ValueError:
        return None
    sendable = all(value.isprintable() and _encodes(value) for value in inbound.headers.values())
    return inbound if sendable else None


def _encodes(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


@check("hostile.text", "any text is refused with 4xx, or reaches the agent as it is")
async def text(stage: Stage) -> None:
    sent = 0
    for what, hostile in TEXTS.items():
        inbound = _made(stage, hostile, stage.names.delivery())
        if inbound is None:
            continue
        sent += 1
        await _one_text(stage, what, hostile, inbound)
    expect(sent, "The kit's inbound() can make none of the texts.")
    await stage.rest()
    await stage.tell(stage.names.conversation())


async def _one_text(stage: Stage, what: str, hostile: str, inbound: Inbound) -> None:
    before = len(stage.fresh)
    answer = await stage.send(inbound)
    accepted = stage.fresh[before:]
    if not accepted:
        expect(
            not answer.ok or what in _MAY_BE_DROPPED,
            f"A text with {what} was answered with {answer.status} and dropped: refuse it, or send "
            "it.",
        )
        return
    expect(answer.ok, f"A text with {what} was refused with {answer.status}, and yet accepted.")
    expect(
        stage.kit.carried(hostile) in accepted[0].delivery.text,
        f"A text with {what} was changed on its way to the agent. Carry it as it is, or say in the "
        "kit's carried() what becomes of it.",
    )


@check("hostile.ids", "any delivery id is refused with 4xx or taken; it never breaks the route")
async def ids(stage: Stage) -> None:
    for hostile in IDS.values():
        inbound = _made(stage, stage.names.ping(), hostile)
        if inbound is not None:
            await stage.send(inbound)
    await stage.rest()
    await stage.tell(stage.names.conversation())


@check("hostile.bodies", "any body is answered without a 5xx, and the next message is taken")
async def bodies(stage: Stage) -> None:
    for body in BODIES.values():
        inbound = stage.kit.raw(body)
        await stage.send(inbound)
        await stage.send(replace(inbound, headers=_as_text(inbound)))
    await stage.rest()
    await stage.tell(stage.names.conversation())


def _as_text(inbound: Inbound) -> dict[str, str]:
    """Return the headers with a content type that the channel does not expect."""
    kept = {k: v for k, v in inbound.headers.items() if k.lower() != "content-type"}
    return {**kept, "content-type": "text/plain; charset=no-such-charset"}


@check("hostile.mentions", "what came from outside notifies nobody at the target", hooks=["posted"])
async def mentions(stage: Stage) -> None:
    live = stage.kit.live_mentions
    if not live:
        raise NotApplicable("set the kit's live_mentions, the texts that notify people")
    stage.harness.reply = lambda turn, _: f"You said: {' '.join(live)} and {turn.prompt.text}"
    conversation = stage.names.conversation()
    told = await stage.tell(conversation)
    await stage.host.until(lambda: stage.posts(conversation), "an answer")
    await stage.rest()
    for shown in await stage.posts(told.conversation):
        minted = [mention for mention in live if mention in shown]
        expect(not minted, f"An answer notifies people: it holds {minted} as it is.")


CHECKS: Sequence[Check] = (text, ids, bodies, mentions)
