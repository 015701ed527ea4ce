"""The suite passes a channel that keeps its promises, and fails one that breaks them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.conformance.broken import BROKEN
from tests.conformance.desk import Desk, DeskKit, Service, signature

from threadline import Channel, EventContext
from threadline.auth import anonymous
from threadline.channel.outbox import Post
from threadline.testing import (
    ChannelKit,
    Inbound,
    Report,
    Result,
    channel_checks,
    channel_conformance,
    signed_request,
)


async def test_a_channel_that_keeps_its_promises_passes() -> None:
    report = await channel_conformance(DeskKit())
    assert report.passed, report
    assert [r.id for r in report.results if r.verdict != "passed"] == ["admission.preempt"]


async def test_a_channel_that_preempts_passes() -> None:
    kit = DeskKit(admission="preempt")
    report = await channel_conformance(kit, only=["admission.declared", "admission.preempt"])
    assert [result.verdict for result in report.results] == ["passed", "passed"], report


async def test_private_conversations_pass() -> None:
    kit = DeskKit(owner="caller")
    report = await channel_conformance(kit, only=["ownership.sender", "ownership.other"])
    assert [result.verdict for result in report.results] == ["passed", "passed"], report


async def test_what_is_meant_is_not_a_failure() -> None:
    class Open(DeskKit):
        public = True
        shared = True
        signed = False
        live_mentions = ()

    checks = ["auth.bare", "auth.tampered", "ownership.stranger", "hostile.mentions"]
    report = await channel_conformance(Open(auth=[signature, anonymous()]), only=checks)
    assert [result.verdict for result in report.results] == ["not applicable"] * 4, report
    said = [result.detail for result in report.results]
    assert all("kit" in sentence for sentence in said), said


@pytest.mark.parametrize(("finds", "verdict"), [(True, "failed"), (False, "passed")])
async def test_a_target_that_cannot_be_asked_may_show_a_post_twice(
    finds: bool, verdict: str
) -> None:
    kit = DeskKit(BlindDesk)
    kit.finds = finds
    report = await channel_conformance(kit, only=["replies.receipt", "replies.recorded"])
    assert report.result("replies.receipt").verdict == verdict, report
    assert report.result("replies.recorded").verdict == "passed", report


async def test_what_an_author_sees_of_an_error_in_a_handler() -> None:
    class Raises(Desk):
        async def say(self, ctx: EventContext, text: str) -> None:
            raise LookupError("no such room")

    report = await channel_conformance(DeskKit(Raises), only=["replies.once"], patience=0.5)
    assert "The host logged handler.failed: LookupError" in str(report)
    assert "no such room" in str(report)


def test_every_check_has_a_channel_that_breaks_it() -> None:
    assert list(BROKEN) == list(channel_checks())


@pytest.mark.parametrize("check_id", BROKEN)
async def test_a_check_can_fail(check_id: str) -> None:
    kit, why = BROKEN[check_id]
    report = await channel_conformance(kit, only=[check_id], patience=1.0)
    (result,) = report.results
    assert result.verdict == "failed", report
    assert why in result.detail, report


@dataclass
class BlindRoom:
    """A conversation that nobody can look into."""

    service: Service
    conversation: str
    credential: str = "desk"
    method: str = "post"

    async def send(self, post: Post) -> str:
        return self.service.take(self.conversation, post.text, post.id)


class BlindDesk(Desk):
    """Posts where it cannot look."""

    async def say(self, ctx: EventContext, text: str) -> None:
        await ctx.post(BlindRoom(self.service, self.room(ctx)), text)


class Bare(ChannelKit):
    """Only what a kit must have."""

    def channel(self) -> Channel:
        return Desk(Service())

    def inbound(self, conversation: str, text: str, delivery_id: str) -> Inbound:
        return DeskKit().inbound(conversation, text, delivery_id)


async def test_what_a_kit_lacks_is_named_and_proves_nothing() -> None:
    report = await channel_conformance(
        Bare(), only=["auth.forged", "backoff.error", "dedupe.again"]
    )
    verdicts = {result.id: (result.verdict, result.detail) for result in report.results}
    assert verdicts == {
        "dedupe.again": ("passed", ""),
        "auth.forged": (
            "not applicable",
            "give forged(inbound), the same request with a wrong credential",
        ),
        "backoff.error": (
            "not applicable",
            "give posted(), what is visible at the outside target and fail_next(status, "
            "retry_after), to refuse a post",
        ),
    }


async def test_a_kit_that_cannot_start_is_a_failure_not_a_crash() -> None:
    class Broken(Bare):
        def channel(self) -> Channel:
            raise LookupError("no such thing")

    report = await channel_conformance(Broken(), only=["tokens.same", "tokens.restart"])
    assert [result.detail for result in report.results] == ["LookupError: no such thing"] * 2


async def test_a_kit_that_is_not_admitted_is_told_so() -> None:
    class Wrong(Bare):
        def inbound(self, conversation: str, text: str, delivery_id: str) -> Inbound:
            return signed_request("wrong", {"room": conversation, "text": text}, path="/spoken")

    report = await channel_conformance(Wrong(), only=["tokens.same"])
    assert "refused with 401" in report.result("tokens.same").detail
    assert "Is the kit's inbound() what the service sends?" in str(report).replace(
        "\n" + " " * 16, " "
    )


async def test_the_outside_is_opened_once_and_always_closed() -> None:
    calls: list[str] = []

    class Opened(Bare):
        async def open(self) -> None:
            calls.append("open")

        async def close(self) -> None:
            calls.append("close")

    await channel_conformance(Opened(), only=["tokens.same", "dedupe.again"])
    assert calls == ["open", "close"]


async def test_an_unknown_check_is_refused() -> None:
    with pytest.raises(ValueError, match=r"There is no check tokens\.smae"):
        await channel_conformance(Bare(), only=["tokens.smae"])


def test_a_report_is_read_by_a_person() -> None:
    report = Report(
        "tickets",
        [
            Result("tokens.same", "a conversation is one session", "passed", "", 0.2),
            Result("dedupe.again", "again is nothing", "failed", "It was\naccepted twice.", 0.1),
            Result("replies.once", "once", "not applicable", "give posted()"),
        ],
    )
    assert str(report).splitlines() == [
        "channel tickets: 1 passed, 1 failed, 1 not applicable (0.3 s)",
        "",
        "passed          tokens.same          a conversation is one session",
        "FAILED          dedupe.again         again is nothing",
        "                It was",
        "                accepted twice.",
        "not applicable  replies.once         once",
        "                give posted()",
    ]
    assert not report.passed
    assert [result.id for result in report.failed] == ["dedupe.again"]
    with pytest.raises(KeyError):
        report.result("tokens.nope")
