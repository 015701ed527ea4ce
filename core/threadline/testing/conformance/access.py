"""Who may speak and who may read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from threadline.session.access import channel_principal
from threadline.testing.conformance.stage import (
    STRANGER,
    Check,
    NotApplicable,
    Stage,
    check,
    expect,
)
from threadline.testing.inbound import Inbound

__all__ = ["CHECKS"]


def _message(stage: Stage) -> Inbound:
    return stage.kit.inbound(stage.names.conversation(), stage.names.ping(), stage.names.delivery())


async def _refused(stage: Stage, inbound: Inbound, what: str) -> None:
    """Fail unless a request gets 401 and leaves nothing behind."""
    answer = await stage.send(inbound)
    expect(
        answer.status == 401,
        f"{what} was answered with {answer.status}, not 401. Put the check into the channel's "
        "auth=: a policy that returns None, or raises Unauthorized, for what it does not admit.",
    )
    expect(not stage.fresh, f"{what} was refused, and yet its message was accepted.")
    expect(not stage.host.sessions(), f"{what} was refused, and yet made a session.")


@check("auth.bare", "a request without a credential is refused with 401, and nothing recorded")
async def bare(stage: Stage) -> None:
    if stage.kit.public:
        raise NotApplicable("anybody may send: the kit says public")
    inbound = stage.kit.bare(_message(stage))
    if inbound is None:
        raise NotApplicable("the kit's bare() says that there is no such request")
    await _refused(stage, inbound, "A request without a credential")


@check(
    "auth.forged", "a wrong credential is refused with 401, and nothing recorded", hooks=["forged"]
)
async def forged(stage: Stage) -> None:
    inbound = stage.kit.forged(_message(stage))
    if inbound is None:
        raise NotApplicable("the kit's forged() says that there is no such request")
    await _refused(stage, inbound, "A request with a wrong credential")


@check("auth.tampered", "a body that was changed after it was signed is refused with 401")
async def tampered(stage: Stage) -> None:
    if not stage.kit.signed:
        raise NotApplicable("set the kit's signed = True if the credential is a signature")
    inbound = _message(stage)
    await _refused(stage, replace(inbound, body=inbound.body + b" "), "A changed body")


@check(
    "ownership.sender", "a session has the owner that the channel declares, a message its sender"
)
async def sender(stage: Stage) -> None:
    told = await stage.tell(stage.names.conversation())
    own = channel_principal(stage.channel.id)
    owner, sent_by = told.accepted.session.owner, told.accepted.delivery.sender
    expect(
        sent_by is not None and (sent_by["kind"], sent_by["id"]) != (own.kind, own.id),
        "A message was recorded as the channel's own. Give ctx.send() the speaker as principal=, "
        "or leave it out: then it is whom the auth policy admitted.",
    )
    if stage.channel.owner == "channel":
        expect(owner == own, f"The session belongs to {owner.key}, not to the channel.")
    else:
        named = f"{sent_by['kind']}:{sent_by['id']}" if sent_by is not None else None
        expect(
            owner.key == named, f"The session belongs to {owner.key}, not to its sender {named}."
        )


@check("ownership.stranger", "who is admitted over HTTP only can neither read nor touch a session")
async def stranger(stage: Stage) -> None:
    if stage.kit.shared:
        raise NotApplicable("whoever is admitted over HTTP may read: the kit says shared")
    told = await stage.tell(stage.names.conversation())
    await stage.rest()
    path = f"/v1/session/{told.session_id}"
    body = {"message": "x", "continuationToken": told.accepted.token}
    for what, method, place, sent in (
        ("read", "GET", f"{path}/events", None),
        ("follow", "GET", f"{path}/stream", None),
        ("speak in", "POST", path, body),
        ("stop", "POST", f"{path}/stop", None),
        ("delete", "DELETE", path, None),
    ):
        answer = await stage.host.request(method, place, json=sent, headers=STRANGER)
        expect(
            answer.status == 403,
            f"A stranger whom only the HTTP chain admits could {what} the conversation: "
            f"{method} answered {answer.status}, not 403. The channel's auth, or its may(), admits "
            "everybody; if that is meant, set the kit's shared = True.",
        )
    listed = await stage.host.get("/v1/sessions", headers=STRANGER)
    expect(told.session_id not in listed.text, "A stranger's list of sessions names it.")


@check(
    "ownership.other",
    "another person joins a shared conversation, and no private one",
    hooks=["other"],
)
async def other(stage: Stage) -> None:
    conversation = stage.names.conversation()
    first = await stage.tell(conversation)
    await stage.rest()
    inbound = stage.kit.other(conversation, stage.names.ping(), stage.names.delivery())
    before = len(stage.fresh)
    answer = await stage.send(inbound)
    accepted = stage.fresh[before:]
    if stage.channel.owner == "channel":
        expect(answer.ok and accepted, f"Another person was refused with {answer.status}.")
        sessions = {result.session.id for result in accepted}
        expect(sessions == {first.session_id}, "Another person's message went to another session.")
        return
    joined = [result for result in accepted if result.session.id == first.session_id]
    expect(
        not joined,
        "Another person spoke in a session that belongs to its first speaker. Declare "
        "owner='channel' if many speak in one conversation.",
    )


CHECKS: Sequence[Check] = (bare, forged, tampered, sender, stranger, other)
