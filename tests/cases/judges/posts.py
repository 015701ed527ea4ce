"""Slack inbound: which post starts a turn, how often, and what the model reads of it."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Mapping
from typing import Any

from tests.cases.judges.registry import Case, judge, steps_of
from tests.cases.slack_world import BOT, CHANNEL, PERSON, TEAM, SlackWorld
from tests.cases.told import Answer

from threadline_slack.testing import StoredFile

__all__: list[str] = []

Step = Mapping[str, Any]

DROPPED = (
    "message_changed",
    "message_deleted",
    "message_replied",
    "bot_message",
    "channel_archive",
    "channel_join",
    "channel_leave",
    "channel_name",
    "channel_purpose",
    "channel_topic",
    "channel_unarchive",
    "group_archive",
    "group_join",
    "group_leave",
    "group_name",
    "group_purpose",
    "group_topic",
    "group_unarchive",
)
HEARD = (None, "file_share", "me_message", "thread_broadcast", "a_new_subtype")


def changed(step: Step, **changes: Any) -> dict[str, Any]:
    """Return a step whose event has other fields; None takes a field away."""
    made = copy.deepcopy(dict(step))
    body = made["body"] if "body" in made else made["payload"]
    merged = {**body["event"], **changes}
    body["event"] = {name: value for name, value in merged.items() if value is not None}
    return made


def prompt_of(world: SlackWorld) -> dict[str, Any]:
    """Return the one ``message.received`` there is."""
    (received,) = world.events("message.received")
    data: dict[str, Any] = received["data"]
    return data


def one_turn(world: SlackWorld, thread: str) -> str:
    """Check that a post had one session, one turn and one answer in its thread; return the text."""
    (session,) = world.sessions()
    assert len(world.events("turn.started")) == 1
    data = prompt_of(world)
    assert data["deliveryIds"] == world.accepted
    assert len(world.accepted) == 1
    said = world.said(thread)
    assert len(said) == 1
    assert [one.ts for one in world.everywhere()] == [said[0].ts]
    assert session.replies == [data["text"]]
    return str(data["text"])


@judge("S-01")
async def twins_are_one_post(world: SlackWorld, case: Case, _: Any) -> None:
    """In both orders, and while both are handled at once: one session, delivery and reply."""
    mention, message = steps_of(case)
    for order in itertools.permutations((mention, message)):
        async with world.fresh() as fresh:
            await fresh.start()
            for step, second in zip(order, (0, 0.02), strict=True):
                answer = await fresh.play({**step, "at_s": second})
                assert answer is not None
                assert answer.status == 200
            await fresh.rest()
            assert one_turn(fresh, "1760000000.000100") == "why is checkout slow?"
    for slow in ((), ("commit",), ("commit", "append", "create")):
        for order in itertools.permutations((mention, message)):
            async with world.fresh() as fresh:
                await fresh.start()
                fresh.disk.delay, fresh.disk.slow = (0.02 if slow else 0.0), slow
                answers = await asyncio.gather(*(fresh.post(step) for step in order))
                assert [answer.status for answer in answers] == [200, 200]
                await fresh.rest()
                one_turn(fresh, "1760000000.000100")


@judge("S-04")
async def a_retry_that_is_the_only_copy_is_heard(world: SlackWorld, case: Case, _: Any) -> None:
    """Whatever the retry headers say, what was never admitted starts a turn; again it does not."""
    (step,) = steps_of(case)
    headers = dict(step["headers"])
    for number, reason in enumerate(("http_error", "http_timeout", "connection_failed"), 1):
        async with world.fresh() as fresh:
            await fresh.start()
            told = {"X-Slack-Retry-Num": str(number), "X-Slack-Retry-Reason": reason}
            assert (await fresh.post(step, headers={**headers, **told})).status == 200
            assert (await fresh.post(step)).status == 200
            await fresh.rest()
            one_turn(fresh, "1760000000.000100")


@judge("S-07")
async def a_claim_is_kept_with_the_work(world: SlackWorld, case: Case, _: Any) -> None:
    """Whichever write fails, the failure is told or nothing is missing; the retry is one turn."""
    _fault, first, retry = steps_of(case)
    told = 0
    for write in itertools.count(1):
        async with world.fresh() as fresh:
            await fresh.start()
            fresh.disk.fail_at = write
            answer = await fresh.post(first)
            reached = fresh.disk.fail_at == 0
            fresh.disk.fail_at = 0
            if answer.status != 200:
                assert answer.status >= 500
                told += 1
            await fresh.at(retry["at_s"])
            assert (await fresh.post(retry)).status == 200
            await fresh.rest()
            one_turn(fresh, "1760000000.000100")
        if not reached:
            break
    assert told > 0


@judge("S-11")
async def the_author_of_an_edit_is_found(world: SlackWorld, case: Case, _: Any) -> None:
    """The author is who wrote the post, not who the event names; without one it is refused."""
    (step,) = steps_of(case)
    event = step["payload"]["event"]
    others = {"message": {**event["message"], "user": PERSON}}
    nobody = {"message": {k: v for k, v in event["message"].items() if k != "user"}}
    lists: list[dict[str, Any]] = [{"blocked": {"U0BLOCKED1"}}, {"allowed": {PERSON}}]
    for options in lists:
        refused: list[dict[str, Any]] = [{}, {"user": PERSON}, nobody, {"user": PERSON, **nobody}]
        for changes in refused:
            async with world.fresh() as fresh:
                await fresh.start(**options)
                signed = bool(changes)
                answer = await fresh.post(changed(step, **changes), signed=signed)
                assert answer.status == 200
                await fresh.rest()
                fresh.untouched()
        async with world.fresh() as fresh:
            await fresh.start(**options)
            await fresh.post(changed(step, **others), signed=True)
            await fresh.rest()
            one_turn(fresh, "1760000000.000100")


def _file(world: SlackWorld, step: Step) -> bytes:
    """Let the file of a step be there to download; return what it holds."""
    event = step["payload"]["event"]
    told = event["files"][0]
    content = b"x" * int(told["size"])
    world.slack.state.files[told["id"]] = StoredFile(
        told["id"],
        told["user_team"],
        told["name"],
        told["title"],
        told["user"],
        told["size"],
        told["created"],
        told["mimetype"],
        content,
        [event["channel"]],
    )
    return content


@judge("S-15")
async def a_mention_with_a_file_is_heard(world: SlackWorld, case: Case, _: Any) -> None:
    """The text is heard, and the file is there or listed; few other subtypes are dropped."""
    (step,) = steps_of(case)
    ts = step["payload"]["event"]["ts"]
    for present in (True, False):
        async with world.fresh() as fresh:
            await fresh.start()
            content = _file(fresh, step) if present else b""
            assert (await fresh.post(step)).status == 200
            await fresh.rest()
            assert one_turn(fresh, ts) == "read this"
            (read,) = fresh.harness.prompts
            for part in ("trace.pdf", "application/pdf", "48211"):
                assert part in read, (part, read)
            kept = [path.read_bytes() for path in fresh.root.glob("sessions/*/workspace/**/*.pdf")]
            assert kept == ([content] if present else [])
    plain = changed(step, files=None, subtype=None)
    for subtype in DROPPED:
        async with world.fresh() as fresh:
            await fresh.start()
            await fresh.post(changed(plain, **_shaped(plain, subtype)), signed=True, plant=False)
            await fresh.rest()
            fresh.untouched()
    for heard in HEARD:
        async with world.fresh() as fresh:
            await fresh.start()
            await fresh.post(changed(plain, subtype=heard), signed=True)
            await fresh.rest()
            assert len(fresh.events("turn.completed")) == 1, heard


def _shaped(step: Step, subtype: str) -> dict[str, Any]:
    """Return the fields that an event of a subtype has, as Slack sends it."""
    event = step["payload"]["event"]
    now = {name: event[name] for name in ("type", "user", "text", "ts", "team")}
    match subtype:
        case "message_changed":  # a link was unfolded: nobody edited anything
            inner: dict[str, Any] = {"message": now, "previous_message": now, "ts": "1760000001.1"}
        case "message_deleted":
            inner = {"previous_message": now, "deleted_ts": event["ts"], "ts": "1760000001.1"}
        case "message_replied":
            inner = {"message": {**now, "thread_ts": event["ts"]}, "ts": "1760000001.1"}
        case "bot_message":
            inner = {"user": None, "bot_id": "B0OTHERBOT", "username": "other"}
        case _:
            inner = {}
    return {**inner, "subtype": subtype}


@judge("S-16")
async def a_mention_alone_is_answered(world: SlackWorld, case: Case, _: Any) -> None:
    """A file without words is named in the prompt; neither words nor file has an answer too."""
    (step,) = steps_of(case)
    ts = step["payload"]["event"]["ts"]
    async with world.fresh() as fresh:
        await fresh.start()
        _file(fresh, step)
        assert (await fresh.post(step)).status == 200
        await fresh.rest()
        assert one_turn(fresh, ts).strip()
        (read,) = fresh.harness.prompts
        assert "trace.pdf" in read
    async with world.fresh() as fresh:
        await fresh.start()
        await fresh.post(changed(step, files=None, subtype=None), signed=True)
        await fresh.rest()
        assert one_turn(fresh, ts).strip()


@judge("S-19")
async def own_posts_are_known_by_any_mark(world: SlackWorld, case: Case, _: Any) -> None:
    """By user, bot or app: none starts a turn, whoever else is heard and whatever is known."""
    (step,) = steps_of(case)
    profile = {"bot_profile": {"id": "B0X", "app_id": "A0AGENT001"}}
    marks: list[dict[str, Any]] = [
        {},
        {"app_id": None},
        {"bot_id": "B0X"},
        {"bot_id": "B0X", "app_id": None, "user": BOT, "subtype": None},
        {"bot_id": "B0X", "app_id": None, **profile},
    ]
    for mark, unknown in itertools.product(marks, (False, True)):
        if unknown and mark == {"app_id": None}:
            continue  # nothing but the bot's id says it, and Slack was not there to tell it
        async with world.fresh() as fresh:
            if unknown:
                fresh.slack.fail("auth.test", times=None)
            await fresh.start(bots=True)
            await fresh.ask(step, f"<@{BOT}> hello", "1760000000.000100", **_human())
            await fresh.rest()
            own = changed(step, **mark)
            assert (await fresh.post(own, signed=bool(mark))).status == 200
            await fresh.rest()
            assert len(fresh.events("turn.started")) == 1, (mark, unknown)


def _human() -> dict[str, Any]:
    """Return what makes a person's post of a bot's."""
    fields = ("bot_id", "app_id", "username", "subtype", "parent_user_id", "bot_profile")
    return {**dict.fromkeys(fields), "user": PERSON, "type": "app_mention"}


@judge("S-20")
async def bots_do_not_talk_for_ever(world: SlackWorld, case: Case, _: Any) -> None:
    """Other bots are not heard; where they are, five in a row at most until a person posts."""
    steps = steps_of(case)
    async with world.fresh() as fresh:
        await fresh.start()
        for step in steps:
            answer = await fresh.play(step)
            assert answer is not None
            assert answer.status == 200
        await fresh.rest()
        fresh.untouched()
    async with world.fresh() as fresh:  # all at once
        await fresh.start(bots=True)
        answers = await asyncio.gather(*(fresh.post(step) for step in steps))
        assert {answer.status for answer in answers} == {200}
        await fresh.rest()
        assert len(fresh.accepted) <= 5
    thread = "1760000000.000100"
    for again, restarts in ((False, False), (True, False), (False, True)):
        async with world.fresh() as fresh:
            await fresh.start(bots=True)
            for number, step in enumerate(steps):
                await fresh.play(step)
                if again:  # a retry is not another exchange
                    await fresh.post(step)
                await fresh.rest()
                assert len(fresh.events("turn.completed")) == min(number + 1, 5)
                if restarts and number == 2:
                    await fresh.restart()
            await fresh.ask(steps[0], "so?", "1760000090.000100", at=thread, **_human())
            await fresh.rest()
            assert len(fresh.events("turn.completed")) == 6
            await fresh.ask(steps[0], f"<@{BOT}> thanks", "1760000091.000100", at=thread)
            await fresh.rest()
            assert len(fresh.events("turn.completed")) == 7


@judge("S-23")
async def a_label_with_spaces_is_understood(world: SlackWorld, case: Case, _: Any) -> None:
    """The model reads names; what is posted never has a label, and is live only if allowed."""
    (step,) = steps_of(case)
    ts = step["payload"]["event"]["ts"]
    for allowed in (False, True):
        async with world.fresh() as fresh:
            await fresh.start(mentions={"U0HUMAN002"} if allowed else ())
            fresh.harness.waits = True
            fresh.harness.tell(Answer("<@U0HUMAN002|Dev Two> and <@U0AGENT001|the agent> agree"))
            await fresh.post(step)
            await fresh.until(lambda: fresh.said(ts), "the answer")
            (data,) = [event["data"] for event in fresh.events("message.received")]
            assert data["text"].split()[:2] == ["summarise", "what"]
            assert data["text"].endswith("said")
            assert any(name in data["text"] for name in ("Dev Two", "dev2", "U0HUMAN002"))
            assert "<@" not in data["text"]
            assert "U0HUMAN002" in fresh.harness.prompts[0]
            (said,) = fresh.said(ts)
            posted = f"{said.text} {said.blocks}"
            assert "|Dev" not in posted
            assert "|the agent" not in posted
            assert ("<@U0HUMAN002>" in posted) is allowed
            assert "<@U0AGENT001>" not in posted
            fresh.harness.free()
            await fresh.ask(
                step, "<@U0HUMAN002|Dev Two> said no", "1760000009.000100", at=ts, type="message"
            )
            await fresh.rest()
            second = fresh.events("message.received")[1]["data"]["text"]
            assert second.endswith("said no")
            assert "<@" not in second
    async with world.fresh() as fresh:  # the label hides no mention
        await fresh.start()
        mention = changed(step, type="message", channel_type="channel", blocks=None)
        await fresh.post(mention, signed=True)
        await fresh.rest()
        assert one_turn(fresh, ts).startswith("summarise what")


@judge("S-24")
async def entities_are_decoded_once(world: SlackWorld, case: Case, _: Any) -> None:
    """Tokens first, then entities; what a person typed is no mention."""
    (step,) = steps_of(case)
    for alone in (False, True):
        async with world.fresh() as fresh:
            await fresh.start()
            await fresh.post(changed(step, blocks=None) if alone else step, signed=alone)
            await fresh.rest()
            text = one_turn(fresh, step["payload"]["event"]["ts"])
            assert "is a < b && c > d? literal &lt;@U0HUMAN002&gt; and <@U0HUMAN002>, see" in text
            assert "https://x.test/?a=1&b=2" in text
            assert "the page" in text
            data = prompt_of(fresh)
            assert "U0HUMAN002" not in str(data["context"])
            assert "dev2" not in str(data["context"])


@judge("S-25")
async def other_tokens_are_words(world: SlackWorld, case: Case, _: Any) -> None:
    """Groups, channels, broadcasts and dates are read as words; a group is not the bot."""
    (step,) = steps_of(case)
    async with world.fresh() as fresh:
        await fresh.start()
        await fresh.post(step)
        await fresh.rest()
        text = one_turn(fresh, step["payload"]["event"]["ts"])
        assert text == "tell @oncall and #alerts, also @here and 2025-10-09"
    for token in ("<!subteam^S0GROUP001|@oncall>", "<!subteam^S0GROUP001>"):
        async with world.fresh() as fresh:
            fresh.slack.add_group("S0GROUP001", "oncall", users=[BOT])
            await fresh.start()
            await fresh.ask(
                step, f"{token} look", "1760000003.000100", type="message", channel=CHANNEL
            )
            await fresh.rest()
            fresh.untouched()
            assert fresh.session("1760000003.000100", team=TEAM) is None
