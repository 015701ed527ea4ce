"""FakeSlack sends events by HTTP: to Bolt, signed; retried, in twins, lost, late, out of order."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

import aiohttp
import pytest
from aiohttp import web
from slack_bolt.adapter.aiohttp import to_aiohttp_response, to_bolt_request
from slack_bolt.async_app import AsyncApp, AsyncAssistant
from slack_sdk.web.async_client import AsyncWebClient

from threadline.testing import ManualClock
from threadline_slack.testing import DEFAULTS, FakeSlack

CHANNEL, PERSON, OTHER = DEFAULTS["channel"], DEFAULTS["person"], DEFAULTS["other"]
BOT, DM, TEAM = DEFAULTS["bot_user"], DEFAULTS["dm"], DEFAULTS["team"]
MENTION = f"<@{BOT}> hello"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """Serve one route on a free port; yields its address."""
    application = web.Application()
    application.router.add_post("/slack/events", handler)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/slack/events"
    finally:
        await runner.cleanup()


@dataclass
class Receiver:
    """An app that answers as it is told, and keeps what it got.

    Each event has a connection of its own: ``bodies`` has them in the order in which they were
    sent, ``got`` as they came.
    """

    slack: FakeSlack | None = None
    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    hang: asyncio.Event | None = None
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.StreamResponse:
        self.got.append((dict(request.headers), await request.read()))
        if self.hang is not None:
            await self.hang.wait()
        status = self.statuses.pop(0) if self.statuses else 200
        return web.Response(status=status, headers=self.headers)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        bodies = [json.loads(body) for _, body in self.got]
        sent = [one.body for one in self.slack.deliveries()] if self.slack else []
        return sorted(bodies, key=sent.index) if all(one in sent for one in bodies) else bodies

    @property
    def events(self) -> list[dict[str, Any]]:
        return [body["event"] for body in self.bodies]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime.now(UTC))


@pytest.fixture
async def slack(clock: ManualClock) -> AsyncIterator[FakeSlack]:
    async with FakeSlack(clock=clock) as running:
        yield running


@pytest.fixture
async def app(slack: FakeSlack) -> AsyncIterator[Receiver]:
    receiver = Receiver(slack)
    async with serving(receiver.take) as url:
        slack.app.request_url = url
        yield receiver


# With Bolt


async def test_bolt_accepts_the_signature_and_answers(slack: FakeSlack) -> None:
    bolt = AsyncApp(
        signing_secret=slack.app.signing_secret,
        client=AsyncWebClient(token=slack.app.bot_token, base_url=slack.api_url),
    )

    @bolt.event("app_mention")
    async def mentioned(event: dict[str, Any], say: Any) -> None:
        await say(f"hello <@{event['user']}>", thread_ts=event["ts"])

    @bolt.event("message")
    async def said() -> None: ...

    async def handle(request: web.Request) -> web.Response:
        answer = await bolt.async_dispatch(await to_bolt_request(request))
        return await to_aiohttp_response(answer)

    async with serving(handle) as url:
        slack.app.request_url = url
        asked = slack.user(PERSON).post(CHANNEL, MENTION)
        await slack.until(lambda: len(slack.messages(CHANNEL, asked.ts)) == 2)
        await slack.settled()
        assert slack.visible(CHANNEL, asked.ts) == [MENTION, f"hello <@{PERSON}>"]
        assert all(one.accepted for one in slack.deliveries())

        slack.app.signing_secret = "another"
        slack.user(PERSON).post(DM, "hi")
        await slack.until(lambda: len(slack.deliveries()[-1].attempts) == 2)
        assert slack.deliveries()[-1].attempts[0].answer.status == 401


async def test_bolts_assistant_is_served(slack: FakeSlack) -> None:
    client = AsyncWebClient(token=slack.app.bot_token, base_url=slack.api_url)
    bolt = AsyncApp(signing_secret=slack.app.signing_secret, client=client)
    assistant = AsyncAssistant()

    @assistant.thread_started
    async def started(set_suggested_prompts: Any) -> None:
        await set_suggested_prompts(prompts=["How is the weather?"])

    @assistant.user_message
    async def asked(payload: dict[str, Any], set_status: Any, say_stream: Any) -> None:
        await set_status("is looking out of the window…")
        stream = await say_stream()
        await stream.append(markdown_text="sun")
        await stream.stop(markdown_text="ny")

    bolt.assistant(assistant)

    async def handle(request: web.Request) -> web.Response:
        answer = await bolt.async_dispatch(await to_bolt_request(request))
        return await to_aiohttp_response(answer)

    async with serving(handle) as url:
        slack.app.request_url = url
        person = slack.user(PERSON)
        root = person.open_assistant_thread(context=CHANNEL)
        await slack.until(lambda: slack.thread(DM, root.ts).prompts)
        person.post(DM, "weather?", thread_ts=root.ts)
        await slack.until(lambda: [call for call in slack.calls("chat.stopStream") if call.done])
        await slack.settled()
    assert slack.visible(DM, root.ts)[-1] == "sunny"
    assert slack.session(DM, root.ts) == "active"


async def test_bolt_proves_its_address(slack: FakeSlack) -> None:
    bolt = AsyncApp(signing_secret=slack.app.signing_secret, token=slack.app.bot_token)

    async def handle(request: web.Request) -> web.Response:
        answer = await bolt.async_dispatch(await to_bolt_request(request))
        return await to_aiohttp_response(answer)

    async with serving(handle) as url:
        slack.app.request_url = url
        assert (await slack.verify_url()).ok
        assert (await slack.check_ssl()).ok


async def test_an_address_that_does_not_know_the_challenge_fails(
    slack: FakeSlack, app: Receiver
) -> None:
    assert (await slack.verify_url()).failure == "challenge_failed"
    assert (await slack.check_ssl()).ok
    assert parse_qs(app.got[-1][1].decode())["ssl_check"] == ["1"]


# The bodies


async def test_the_signature_is_over_the_raw_body(
    slack: FakeSlack, app: Receiver, clock: ManualClock
) -> None:
    slack.user(PERSON).post(DM, "grüße")
    await slack.settled()
    headers, body = app.got[0]
    stamp = headers["X-Slack-Request-Timestamp"]
    assert stamp == str(int(clock.now().timestamp()))
    signed = b"v0:" + stamp.encode() + b":" + body
    digest = hmac.new(slack.app.signing_secret.encode(), signed, hashlib.sha256).hexdigest()
    assert headers["X-Slack-Signature"] == f"v0={digest}"
    assert "grüße".encode() in body
    assert "X-Slack-Retry-Num" not in headers


async def test_a_mention_comes_twice_under_two_ids(slack: FakeSlack, app: Receiver) -> None:
    posted = slack.user(PERSON).post(CHANNEL, MENTION)
    await slack.settled()
    first, second = app.bodies
    assert {first["event"]["type"], second["event"]["type"]} == {"message", "app_mention"}
    assert first["event_id"] != second["event_id"]
    assert first["event"]["ts"] == second["event"]["ts"] == posted.ts
    twin = next(one for one in app.events if one["type"] == "app_mention")
    assert "channel_type" not in twin
    assert twin["blocks"][0]["elements"][0]["elements"] == [
        {"type": "user", "user_id": BOT},
        {"type": "text", "text": " hello"},
    ]
    assert first["authorizations"] == [
        {
            "enterprise_id": None,
            "team_id": TEAM,
            "user_id": BOT,
            "is_bot": True,
            "is_enterprise_install": False,
        }
    ]
    assert first["api_app_id"] == DEFAULTS["app"]
    assert first["is_ext_shared_channel"] is False


async def test_direct_and_group_messages_have_no_twin(slack: FakeSlack, app: Receiver) -> None:
    slack.user(PERSON).post(DM, MENTION)
    slack.user(PERSON).post(DEFAULTS["group_dm"], MENTION)
    await slack.settled()
    assert [one["channel_type"] for one in app.events] == ["im", "mpim"]


async def test_replies_broadcasts_files_and_me_messages(slack: FakeSlack, app: Receiver) -> None:
    person = slack.user(PERSON)
    root = person.post(CHANNEL, "root")
    person.post(CHANNEL, "reply", thread_ts=root.ts)
    person.post(CHANNEL, "to all", thread_ts=root.ts, broadcast=True)
    person.upload(CHANNEL, "trace.pdf", b"%PDF", text="see")
    person.post(CHANNEL, "waves", me=True)
    await slack.settled()
    plain, reply, broadcast, shared, me = app.events
    assert "thread_ts" not in plain
    assert (reply["thread_ts"], reply["parent_user_id"]) == (root.ts, PERSON)
    assert broadcast["subtype"] == "thread_broadcast"
    assert broadcast["root"]["ts"] == root.ts
    assert shared["subtype"] == "file_share"
    assert shared["files"][0]["name"] == "trace.pdf"
    assert me["subtype"] == "me_message"


async def test_edits_and_deletions(slack: FakeSlack, app: Receiver) -> None:
    person = slack.user(PERSON)
    posted = person.post(CHANNEL, "helo")
    person.edit(posted, MENTION)
    person.delete(posted)
    await slack.settled()
    _, changed, mention, deleted = app.events
    assert changed["subtype"] == "message_changed"
    assert "user" not in changed
    assert changed["message"]["text"] == MENTION
    assert changed["message"]["edited"]["user"] == PERSON
    assert changed["previous_message"]["text"] == "helo"
    assert changed["ts"] != posted.ts
    assert (mention["type"], mention["ts"]) == ("app_mention", posted.ts)
    assert mention["edited"]["user"] == PERSON
    assert deleted["subtype"] == "message_deleted"
    assert deleted["deleted_ts"] == posted.ts
    assert deleted["previous_message"]["text"] == MENTION


async def test_a_deleted_root_with_replies_is_an_edit(slack: FakeSlack, app: Receiver) -> None:
    person = slack.user(PERSON)
    root = person.post(CHANNEL, "root")
    person.post(CHANNEL, "reply", thread_ts=root.ts)
    person.delete(root)
    await slack.settled()
    assert app.events[-1]["subtype"] == "message_changed"
    assert app.events[-1]["message"]["subtype"] == "tombstone"


async def test_the_apps_own_posts_come_back(slack: FakeSlack, app: Receiver) -> None:
    client = AsyncWebClient(token=slack.app.bot_token, base_url=slack.api_url)
    posted = await client.chat_postMessage(channel=CHANNEL, text=f"I am <@{BOT}>")
    await client.chat_update(channel=CHANNEL, ts=posted["ts"], text="edited")
    await client.chat_delete(channel=CHANNEL, ts=posted["ts"])
    await slack.settled()
    assert [one.get("subtype") for one in app.events] == [
        None,
        "message_changed",
        "message_deleted",
    ]
    assert app.events[0]["bot_id"] == DEFAULTS["bot"]
    assert app.events[0]["app_id"] == DEFAULTS["app"]
    slack.options.own_events = False
    await client.chat_postMessage(channel=CHANNEL, text="quiet")
    await slack.settled()
    assert len(app.events) == 3


async def test_other_bots_and_webhooks(slack: FakeSlack, app: Receiver) -> None:
    slack.add_bot("U0OTHERBOT", "alerts", bot_id="B0OTHERBOT", app="A0OTHERAPP")
    bot = slack.bot("B0OTHERBOT")
    alert = bot.post(CHANNEL, attachments=[{"color": "danger", "title": "CPU", "text": "high"}])
    bot.post(CHANNEL, MENTION, classic=True)
    bot.edit(alert, attachments=[{"color": "good", "title": "CPU", "text": "fine"}])
    async with aiohttp.ClientSession() as http:
        address = slack.add_webhook(CHANNEL, "Alertmanager")
        body = {"attachments": [{"fallback": "disk full"}]}
        assert await (await http.post(address, json=body)).text() == "ok"
        assert (await http.post(address + "x", json=body)).status == 404
    await slack.settled()
    by_user, classic, twin, changed, hooked = app.events
    assert by_user["bot_profile"]["app_id"] == "A0OTHERAPP"
    assert by_user["text"] == ""
    assert classic["subtype"] == "bot_message"
    assert "user" not in classic
    assert twin["type"] == "app_mention"
    assert changed["message"]["attachments"][0]["text"] == "fine"
    assert (hooked["subtype"], hooked["username"]) == ("bot_message", "Alertmanager")
    assert slack.visible(CHANNEL) == ["CPU\nfine", MENTION, "disk full"]


async def test_reactions_and_members(slack: FakeSlack, app: Receiver) -> None:
    slack.add_user("U0NEWCOMER1")
    person = slack.user(PERSON)
    posted = person.post(CHANNEL, "x")
    person.react(posted, "+1")
    person.unreact(posted, "+1")
    person.invite(CHANNEL, "U0NEWCOMER1")
    person.kick(CHANNEL, "U0NEWCOMER1")
    await slack.settled()
    _, added, removed, joined, notice, left = app.events
    assert (added["type"], added["reaction"], added["item_user"]) == (
        "reaction_added",
        "+1",
        PERSON,
    )
    assert added["item"] == {"type": "message", "channel": CHANNEL, "ts": posted.ts}
    assert removed["type"] == "reaction_removed"
    assert (joined["type"], joined["inviter"]) == ("member_joined_channel", PERSON)
    assert notice["subtype"] == "channel_join"
    assert left["type"] == "member_left_channel"


async def test_the_bot_joining_is_no_mention(slack: FakeSlack, app: Receiver) -> None:
    slack.add_channel("C0PUBLIC001", "public", members=[PERSON])
    slack.user(PERSON).invite("C0PUBLIC001", BOT)
    await slack.settled()
    assert [one["type"] for one in app.events] == ["member_joined_channel", "message"]


# Who hears of what


async def test_apps_hear_what_they_subscribe_to_may_read_and_are_in(
    slack: FakeSlack, app: Receiver
) -> None:
    slack.add_channel("C0PUBLIC001", "public", members=[PERSON])
    person = slack.user(PERSON)
    person.post("C0PUBLIC001", MENTION)
    slack.app.events = {"app_mention", "message.im"}
    person.post(CHANNEL, MENTION)
    person.post(CHANNEL, "talk")
    person.post(DM, "hi")
    slack.app.install.scopes.discard("im:history")
    person.post(DM, "unheard")
    await slack.settled()
    assert [(one["type"], one["text"]) for one in app.events] == [
        ("app_mention", MENTION),
        ("message", "hi"),
    ]


async def test_slack_connect_says_where_somebody_is_from(slack: FakeSlack, app: Receiver) -> None:
    slack.add_team("T0OTHERORG")
    slack.add_user("U0EXTERNAL", team="T0OTHERORG")
    slack.add_channel(
        "C0SHARED001", "shared", members=[BOT, "U0EXTERNAL"], teams=[TEAM, "T0OTHERORG"]
    )
    slack.user("U0EXTERNAL").post("C0SHARED001", "hello")
    await slack.settled()
    body = app.bodies[0]
    assert body["is_ext_shared_channel"] is True
    assert (body["team_id"], body["context_team_id"]) == ("T0OTHERORG", TEAM)
    assert body["event"]["user_team"] == body["event"]["team"] == "T0OTHERORG"


async def test_an_org_wide_installation_has_no_team(slack: FakeSlack, app: Receiver) -> None:
    slack.add_team("T0ONE", enterprise="E0ORG00001")
    slack.add_user("U0ONE000001", team="T0ONE")
    wide = slack.add_app("A0ORGWIDE1", "wide")
    wide.request_url = slack.app.request_url
    install = slack.install(wide, enterprise="E0ORG00001")
    slack.add_channel("C0ONE", "one", members=[install.bot_user, "U0ONE000001"], teams=["T0ONE"])
    slack.user("U0ONE000001").post("C0ONE", "hello")
    await slack.settled()
    body = app.bodies[0]
    assert (body["team_id"], body["context_team_id"]) == ("T0ONE", None)
    assert body["enterprise_id"] == body["context_enterprise_id"] == "E0ORG00001"
    assert body["authorizations"][0]["is_enterprise_install"] is True


async def test_each_app_hears_under_ids_of_its_own(slack: FakeSlack, app: Receiver) -> None:
    other = slack.add_app("A0OTHERAPP", "other")
    other.request_url = slack.app.request_url
    slack.install(other)
    slack.user(PERSON).invite(CHANNEL, other.bot_user)
    await slack.settled()
    app.got.clear()
    slack.user(PERSON).post(CHANNEL, "hello")
    await slack.settled()
    first, second = app.bodies
    assert {first["api_app_id"], second["api_app_id"]} == {DEFAULTS["app"], "A0OTHERAPP"}
    assert first["event_id"] != second["event_id"]


async def test_removal_and_limits_are_told(slack: FakeSlack, app: Receiver) -> None:
    slack.limit_events()
    slack.revoke()
    await slack.settled()
    limited, tokens, removed = app.bodies
    assert limited["type"] == "app_rate_limited"
    assert limited["minute_rate_limited"] % 60 == 0
    assert tokens["event"]["type"] == "tokens_revoked"
    assert removed["event"]["type"] == "app_uninstalled"
    slack.user(PERSON).post(CHANNEL, "nobody listens")
    await slack.settled()
    assert len(app.got) == 3


# Retries


async def test_a_failure_is_retried_at_once_then_later(
    slack: FakeSlack, app: Receiver, clock: ManualClock
) -> None:
    app.statuses = [500, 503, 404, 500]
    slack.user(PERSON).post(DM, "hi")
    await slack.until(lambda: len(slack.deliveries()[0].attempts) == 2)
    await slack.settled()
    assert len(app.got) == 2
    clock.advance(60)
    await slack.until(lambda: len(slack.deliveries()[0].attempts) == 3)
    await clock.sleeping(1)
    clock.advance(300)
    await slack.until(lambda: slack.deliveries()[0].done)
    clock.advance(3600)
    await slack.settled()
    retries = [headers.get("X-Slack-Retry-Num") for headers, _ in app.got]
    assert retries == [None, "1", "2", "3"]
    reasons = [headers.get("X-Slack-Retry-Reason") for headers, _ in app.got]
    assert reasons == [None, "http_error", "http_error", "http_error"]
    assert len({body["event_id"] for body in app.bodies}) == 1
    stamps = [int(headers["X-Slack-Request-Timestamp"]) for headers, _ in app.got]
    assert stamps[3] - stamps[0] == 360
    assert not slack.deliveries()[0].accepted


async def test_a_late_answer_counts_for_nothing(
    slack: FakeSlack, app: Receiver, clock: ManualClock
) -> None:
    app.hang = asyncio.Event()
    slack.user(PERSON).post(DM, "hi")
    await slack.until(lambda: len(app.got) == 1)
    app.hang, hung = None, app.hang
    clock.advance(2.9)
    assert slack.pulse.under_way
    clock.advance(0.1)
    await slack.until(lambda: slack.deliveries()[0].done)
    assert app.got[1][0]["X-Slack-Retry-Reason"] == "http_timeout"
    hung.set()


async def test_an_app_can_refuse_retries(slack: FakeSlack, app: Receiver) -> None:
    app.statuses, app.headers = [500], {"X-Slack-No-Retry": "1"}
    slack.user(PERSON).post(DM, "hi")
    await slack.until(lambda: slack.deliveries()[0].done)
    assert len(app.got) == 1
    assert not slack.deliveries()[0].accepted


async def test_nobody_at_the_address(slack: FakeSlack, clock: ManualClock) -> None:
    async with serving(Receiver().take) as url:
        slack.app.request_url = url
    slack.user(PERSON).post(DM, "hi")
    await slack.until(lambda: len(slack.deliveries()[0].attempts) == 2)
    assert slack.deliveries()[0].attempts[0].answer.failure == "connection_failed"
    back = Receiver()
    async with serving(back.take) as url:
        slack.app.request_url = url
        clock.advance(60)
        await slack.until(lambda: slack.deliveries()[0].accepted)
        assert back.got[0][0]["X-Slack-Retry-Num"] == "2"


async def test_redirects_end_somewhere(slack: FakeSlack) -> None:
    async def round_and_round(request: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect(request.path)

    slack.options.retries = ()
    async with serving(round_and_round) as url:
        slack.app.request_url = url
        slack.user(PERSON).post(DM, "hi")
        await slack.until(lambda: slack.deliveries()[0].done)
    assert slack.deliveries()[0].attempts[0].answer.failure == "too_many_redirects"


# Faults of events


async def test_events_are_lost(slack: FakeSlack, app: Receiver) -> None:
    slack.events.lose(when=lambda event: event["type"] == "message")
    slack.user(PERSON).post(CHANNEL, MENTION)
    await slack.settled()
    assert [one["type"] for one in app.events] == ["app_mention"]


async def test_events_are_late(slack: FakeSlack, app: Receiver, clock: ManualClock) -> None:
    slack.events.delay(60)
    slack.user(PERSON).post(DM, "one")
    slack.user(PERSON).post(DM, "two")
    await slack.settled()
    assert [one["text"] for one in app.events] == ["two"]
    clock.advance(60)
    await slack.until(lambda: len(app.got) == 2)
    await slack.settled()


async def test_events_come_twice(slack: FakeSlack, app: Receiver) -> None:
    slack.events.duplicate()
    slack.user(PERSON).post(DM, "same id")
    slack.events.duplicate(new_id=True)
    slack.user(PERSON).post(DM, "new id")
    await slack.settled()
    ids = [body["event_id"] for body in app.bodies]
    assert [one["text"] for one in app.events] == ["same id"] * 2 + ["new id"] * 2
    assert len(set(ids)) == 3


async def test_events_come_out_of_order(slack: FakeSlack, app: Receiver) -> None:
    slack.events.reorder(3)
    for text in ("one", "two", "three", "four"):
        slack.user(PERSON).post(DM, text)
    await slack.settled()
    assert [one["text"] for one in app.events] == ["three", "two", "one", "four"]


async def test_events_are_held(slack: FakeSlack, app: Receiver) -> None:
    slack.events.hold()
    for text in ("one", "two", "three"):
        slack.user(PERSON).post(DM, text)
    await slack.settled()
    assert (app.got, slack.events.kept) == ([], 3)
    slack.events.release(lambda events: [events[1], events[0], events[2]])
    await slack.settled()
    assert [one["text"] for one in app.events] == ["two", "one", "three"]


# What a test makes itself


async def test_a_planted_message_is_there_and_nobody_heard(slack: FakeSlack, app: Receiver) -> None:
    event = {
        "type": "app_mention",
        "user": "U0STRANGER1",
        "ts": "1760000000.000100",
        "text": MENTION,
        "team": "T0OTHERORG",
        "channel": "C0ELSEWHERE",
        "event_ts": "1760000000.000100",
    }
    slack.plant(event)
    slack.plant(event | {"ts": "1760000001.000100", "thread_ts": event["ts"], "text": "more"})
    client = AsyncWebClient(token=slack.app.bot_token, base_url=slack.api_url)
    await client.chat_postMessage(channel="C0ELSEWHERE", text="x", thread_ts=event["ts"])
    assert slack.visible("C0ELSEWHERE", event["ts"]) == [MENTION, "more", "x"]
    await slack.settled()
    assert [one["text"] for one in app.events] == ["x"]


async def test_people_cannot_do_what_slack_would_not_let_them(slack: FakeSlack) -> None:
    slack.add_user("U0OUTSIDER1")
    outsider = slack.user("U0OUTSIDER1")
    with pytest.raises(LookupError, match="not a member"):
        outsider.post(CHANNEL, "x")
    posted = slack.user(PERSON).post(CHANNEL, "x")
    with pytest.raises(LookupError, match="not by"):
        slack.user(OTHER).edit(posted, "y")
    with pytest.raises(LookupError, match="no user"):
        slack.user("U0NOBODY001")
    slack.user(PERSON).delete(posted)
    with pytest.raises(LookupError, match="no message"):
        slack.user(PERSON).react(posted, "eyes")


async def test_two_of_them_run_side_by_side(clock: ManualClock) -> None:
    async with FakeSlack(clock=clock) as one, FakeSlack(clock=clock) as other:
        assert one.url != other.url
        one.user(PERSON).post(CHANNEL, "here")
        assert other.visible(CHANNEL) == []
