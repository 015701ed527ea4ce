"""FakeSlack sends buttons, modals, shortcuts and commands to Bolt, and does what it answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

import aiohttp
import pytest
from aiohttp import web
from slack_bolt.adapter.aiohttp import to_aiohttp_response, to_bolt_request
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from threadline.testing import ManualClock
from threadline_slack.testing import DEFAULTS, FakeSlack, Message

CHANNEL, PERSON, OTHER = DEFAULTS["channel"], DEFAULTS["person"], DEFAULTS["other"]
BOT, DM = DEFAULTS["bot_user"], DEFAULTS["dm"]

CARD = [
    {
        "type": "actions",
        "block_id": "card",
        "elements": [
            {
                "type": "button",
                "action_id": "approve",
                "text": {"type": "plain_text", "text": "Approve & run +1 100%"},
                "style": "primary",
                "value": "call_01",
            },
            {
                "type": "static_select",
                "action_id": "size",
                "options": [
                    {"text": {"type": "plain_text", "text": "Small"}, "value": "s"},
                    {"text": {"type": "plain_text", "text": "Large"}, "value": "l"},
                ],
            },
            {"type": "external_select", "action_id": "city", "min_query_length": 1},
        ],
    }
]
MODAL: dict[str, Any] = {
    "type": "modal",
    "callback_id": "why",
    "title": {"type": "plain_text", "text": "Why?"},
    "submit": {"type": "plain_text", "text": "Send"},
    "private_metadata": "call_01",
    "notify_on_close": True,
    "blocks": [
        {
            "type": "input",
            "block_id": "reason",
            "label": {"type": "plain_text", "text": "Reason"},
            "element": {"type": "plain_text_input", "action_id": "text"},
        },
        {
            "type": "input",
            "block_id": "kind",
            "label": {"type": "plain_text", "text": "Kind"},
            "element": {
                "type": "radio_buttons",
                "action_id": "kind",
                "options": [{"text": {"type": "plain_text", "text": "Risk"}, "value": "risk"}],
            },
        },
    ],
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime.now(UTC))


@pytest.fixture
async def slack(clock: ManualClock) -> AsyncIterator[FakeSlack]:
    async with FakeSlack(clock=clock) as running:
        running.app.events = set()
        yield running


@pytest.fixture
def client(slack: FakeSlack) -> AsyncWebClient:
    return AsyncWebClient(token=slack.app.bot_token, base_url=slack.api_url)


@pytest.fixture
async def bolt(slack: FakeSlack, client: AsyncWebClient) -> AsyncIterator[AsyncApp]:
    """A Bolt app that FakeSlack sends to."""
    app = AsyncApp(signing_secret=slack.app.signing_secret, client=client)

    async def handle(request: web.Request) -> web.Response:
        answer = await app.async_dispatch(await to_bolt_request(request))
        return await to_aiohttp_response(answer)

    application = web.Application()
    application.router.add_post("/slack/events", handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    slack.app.request_url = f"http://127.0.0.1:{runner.addresses[0][1]}/slack/events"
    yield app
    await runner.cleanup()


@pytest.fixture
async def card(slack: FakeSlack, client: AsyncWebClient) -> Message:
    posted = await client.chat_postMessage(channel=CHANNEL, text="May I?", blocks=CARD)
    return slack.message(posted["ts"])


async def refused(call: Any) -> str:
    with pytest.raises(SlackApiError) as caught:
        await call
    return str(caught.value.response["error"])


# Buttons and selects


async def test_a_button_reaches_its_handler(
    slack: FakeSlack, bolt: AsyncApp, card: Message
) -> None:
    heard: list[dict[str, Any]] = []

    @bolt.action("approve")
    async def approve(ack: Any, body: dict[str, Any], respond: Any) -> None:
        heard.append(body)
        await ack()
        await respond(text="approved", blocks=[], replace_original=True)

    answer = await slack.user(PERSON).click(card, "approve")
    assert (answer.status, answer.body) == (200, "")
    await slack.until(lambda: slack.visible(CHANNEL) == ["approved"])
    body = heard[0]
    assert body["user"]["id"] == PERSON
    assert body["container"]["message_ts"] == card.ts
    assert body["channel"]["id"] == CHANNEL
    assert body["message"]["text"] == "May I?"
    action = body["actions"][0]
    assert action["text"]["text"] == "Approve & run +1 100%"
    assert (action["block_id"], action["value"], action["style"]) == (
        "card",
        "call_01",
        "primary",
    )


async def test_a_choice_is_sent_as_an_option(
    slack: FakeSlack, bolt: AsyncApp, card: Message
) -> None:
    chosen: list[Any] = []

    @bolt.action("size")
    async def size(ack: Any, action: dict[str, Any]) -> None:
        chosen.append(action["selected_option"]["text"]["text"])
        await ack()

    await slack.user(PERSON).click(card.ts, "size", "l")
    assert chosen == ["Large"]
    with pytest.raises(LookupError, match="no option"):
        slack.user(PERSON).click(card, "size", "xl")


async def test_options_come_from_the_app(slack: FakeSlack, bolt: AsyncApp, card: Message) -> None:
    @bolt.options("city")
    async def cities(ack: Any, payload: dict[str, Any]) -> None:
        found = {"text": {"type": "plain_text", "text": payload["value"] + "burg"}, "value": "h"}
        await ack(options=[found])

    answer = await slack.user(PERSON).suggest(card, "city", "Ham")
    assert answer.body["options"][0]["text"]["text"] == "Hamburg"


async def test_what_is_not_there_cannot_be_pressed(
    slack: FakeSlack, bolt: AsyncApp, client: AsyncWebClient, card: Message
) -> None:
    pressed: list[str] = []

    @bolt.action("approve")
    async def approve(ack: Any, action: dict[str, Any]) -> None:
        pressed.append(action["value"])
        await ack()

    await client.chat_update(channel=CHANNEL, ts=card.ts, text="too late", blocks=[])
    with pytest.raises(LookupError, match="nothing to press"):
        slack.user(PERSON).click(card, "approve")
    await slack.user(PERSON).click(card, "approve", "call_01", stale=True)
    assert pressed == ["call_01"]


async def test_feedback_says_which(
    slack: FakeSlack, bolt: AsyncApp, client: AsyncWebClient
) -> None:
    elements = {
        "type": "feedback_buttons",
        "action_id": "feedback",
        "positive_button": {"text": {"type": "plain_text", "text": "Good"}, "value": "good"},
        "negative_button": {"text": {"type": "plain_text", "text": "Bad"}, "value": "bad"},
    }
    blocks = [{"type": "context_actions", "elements": [elements]}]
    posted = await client.chat_postMessage(channel=CHANNEL, text="x", blocks=blocks)
    said: list[str] = []

    @bolt.action("feedback")
    async def feedback(ack: Any, action: dict[str, Any]) -> None:
        said.append(action["value"])
        await ack()

    await slack.user(PERSON).click(posted["ts"], "feedback", "bad")
    assert said == ["bad"]


async def test_an_interaction_is_never_sent_again(
    slack: FakeSlack, bolt: AsyncApp, clock: ManualClock, card: Message
) -> None:
    calls = 0
    let_go = asyncio.Event()

    @bolt.action("approve")
    async def approve(ack: Any) -> None:
        nonlocal calls
        calls += 1
        await let_go.wait()
        await ack()

    interaction = slack.user(PERSON).click(card, "approve")
    await slack.until(lambda: calls)
    clock.advance(3)
    assert (await interaction).failure == "http_timeout"
    let_go.set()
    clock.advance(600)
    await slack.settled()
    assert calls == 1


async def test_no_app_no_answer(slack: FakeSlack, card: Message) -> None:
    assert (await slack.user(PERSON).click(card, "approve")).failure == "connection_failed"


# response_url


async def test_a_response_url_whispers_replaces_deletes(
    slack: FakeSlack, bolt: AsyncApp, card: Message
) -> None:
    @bolt.action("approve")
    async def approve(ack: Any, respond: Any, action: dict[str, Any]) -> None:
        await ack()
        if action["value"] == "whisper":
            await respond(text="only you", response_type="ephemeral", replace_original=False)
        elif action["value"] == "public":
            await respond(text="all", response_type="in_channel", replace_original=False)
        else:
            await respond(delete_original=True)

    person = slack.user(PERSON)
    person.click(card, "approve", "whisper")
    await slack.until(lambda: [one.text for one in slack.whispers(PERSON)] == ["only you"])
    person.click(card, "approve", "public")
    await slack.until(lambda: "all" in slack.visible(CHANNEL))
    public = slack.messages(CHANNEL)[-1]
    assert (public.user, public.bot_id, public.subtype) == (None, DEFAULTS["bot"], "bot_message")
    person.click(card, "approve", "delete")
    await slack.until(lambda: slack.visible(CHANNEL) == ["all"])


async def test_a_response_url_is_used_up(
    slack: FakeSlack, bolt: AsyncApp, clock: ManualClock, card: Message
) -> None:
    @bolt.action("approve")
    async def approve(ack: Any) -> None:
        await ack()

    interaction = slack.user(PERSON).click(card, "approve")
    await interaction
    url = interaction.payload["response_url"]
    async with aiohttp.ClientSession() as http:

        async def use(address: str) -> int:
            return (await http.post(address, json={"text": "x"})).status

        assert [await use(url) for _ in range(6)] == [200] * 5 + [404]
        fresh = slack.user(PERSON).click(card, "approve")
        await fresh
        clock.advance(1801)
        assert await use(fresh.payload["response_url"]) == 404
        assert await use(f"{slack.url}/actions/T/never") == 404


async def test_an_ephemeral_card_is_replaced_by_its_url_only(
    slack: FakeSlack, bolt: AsyncApp, client: AsyncWebClient
) -> None:
    bodies: list[dict[str, Any]] = []

    @bolt.action("approve")
    async def approve(ack: Any, body: dict[str, Any], respond: Any) -> None:
        bodies.append(body)
        await ack()
        await respond(text="thanks", replace_original=True)

    await client.chat_postEphemeral(channel=CHANNEL, user=PERSON, text="May I?", blocks=CARD)
    whispered = slack.whispers(PERSON)[0]
    with pytest.raises(LookupError, match="does not see"):
        slack.user(OTHER).click(whispered, "approve")
    await slack.user(PERSON).click(whispered, "approve")
    await slack.until(lambda: slack.visible(CHANNEL, user=PERSON) == ["thanks"])
    assert bodies[0]["container"]["is_ephemeral"] is True
    assert "message" not in bodies[0]


# Modals


async def test_a_modal_from_open_to_submission(
    slack: FakeSlack, bolt: AsyncApp, card: Message
) -> None:
    heard: dict[str, Any] = {}

    @bolt.action("approve")
    async def approve(ack: Any, body: dict[str, Any], client: AsyncWebClient) -> None:
        await ack()
        await client.views_open(trigger_id=body["trigger_id"], view=MODAL)

    @bolt.view("why")
    async def why(ack: Any, view: dict[str, Any], body: dict[str, Any]) -> None:
        heard.update(values=view["state"]["values"], metadata=view["private_metadata"])
        assert body["user"]["id"] == PERSON
        if view["state"]["values"]["reason"]["text"]["value"] == "":
            await ack(response_action="errors", errors={"reason": "Say why."})
        else:
            await ack()

    person = slack.user(PERSON)
    person.click(card, "approve")
    await slack.until(lambda: slack.modals(PERSON))
    await person.submit_view({"text": "", "kind": "risk"})
    assert person.modal.errors == {"reason": "Say why."}
    await person.submit_view({"text": "because", "kind": "risk"})
    assert slack.modals(PERSON) == []
    assert heard["metadata"] == "call_01"
    assert heard["values"]["reason"]["text"] == {"type": "plain_text_input", "value": "because"}
    assert heard["values"]["kind"]["kind"]["selected_option"]["value"] == "risk"


async def test_modals_are_pushed_updated_cleared_and_closed(
    slack: FakeSlack, bolt: AsyncApp, card: Message
) -> None:
    second = {**MODAL, "callback_id": "second"}
    closed: list[bool] = []

    @bolt.action("approve")
    async def approve(ack: Any, body: dict[str, Any], client: AsyncWebClient) -> None:
        await ack()
        await client.views_open(trigger_id=body["trigger_id"], view=MODAL)

    @bolt.view("why")
    async def why(ack: Any, view: dict[str, Any]) -> None:
        if view["state"]["values"]["reason"]["text"]["value"] == "update":
            await ack(response_action="update", view={**MODAL, "private_metadata": "new"})
        else:
            await ack(response_action="push", view=second)

    @bolt.view("second")
    async def more(ack: Any) -> None:
        await ack(response_action="clear")

    @bolt.view_closed("second")
    async def gone(ack: Any, body: dict[str, Any]) -> None:
        closed.append(body["is_cleared"])
        await ack()

    person = slack.user(PERSON)
    person.click(card, "approve")
    await slack.until(lambda: slack.modals(PERSON))
    await person.submit_view({"text": "update"})
    assert person.modal.body["private_metadata"] == "new"
    await person.submit_view({"text": "push"})
    assert [one.body["callback_id"] for one in slack.modals(PERSON)] == ["why", "second"]
    assert person.modal.previous == slack.modals(PERSON)[0].id
    await person.submit_view()
    assert slack.modals(PERSON) == []
    person.click(card, "approve")
    await slack.until(lambda: slack.modals(PERSON))
    await person.submit_view({"text": "push"})
    told = person.close_view()
    assert told is not None
    await told
    assert closed == [False]
    assert [one.body["callback_id"] for one in slack.modals(PERSON)] == ["why"]


async def test_the_rules_of_views(
    slack: FakeSlack, client: AsyncWebClient, clock: ManualClock, card: Message
) -> None:
    trigger = slack.user(PERSON).click(card, "approve").payload["trigger_id"]
    late = slack.user(PERSON).click(card, "approve").payload["trigger_id"]
    opened = await client.views_open(trigger_id=trigger, view=MODAL)
    again = client.views_open(trigger_id=trigger, view=MODAL)
    assert await refused(again) == "exchanged_trigger_id"
    clock.advance(3.1)
    assert await refused(client.views_open(trigger_id=late, view=MODAL)) == "expired_trigger_id"
    assert await refused(client.views_open(trigger_id="x", view=MODAL)) == "invalid_trigger_id"
    for wrong in ({"title": None}, {"submit": None}, {"type": "home"}, {"blocks": None}):
        call = client.views_open(trigger_id="x", view={**MODAL, **wrong})
        assert await refused(call) == "invalid_arguments"
    view = opened["view"]
    update = client.views_update
    stale = update(view_id=view["id"], hash="old", view=MODAL)
    assert await refused(stale) == "hash_conflict"
    fresh = await update(view_id=view["id"], hash=view["hash"], view=MODAL)
    assert fresh["view"]["hash"] != view["hash"]
    assert await refused(update(view_id="V0", view=MODAL)) == "not_found"
    for _ in range(2):
        pushed = slack.user(PERSON).click(card, "approve").payload["trigger_id"]
        await client.views_push(trigger_id=pushed, view=MODAL)
    pushed = slack.user(PERSON).click(card, "approve").payload["trigger_id"]
    assert await refused(client.views_push(trigger_id=pushed, view=MODAL)) == "push_limit_reached"


async def test_a_home_tab_is_published_and_used(
    slack: FakeSlack, bolt: AsyncApp, client: AsyncWebClient
) -> None:
    pressed: list[str] = []

    @bolt.action("approve")
    async def approve(ack: Any, body: dict[str, Any]) -> None:
        pressed.append(body["view"]["type"])
        await ack()

    await client.views_publish(user_id=PERSON, view={"type": "home", "blocks": CARD})
    again = await client.views_publish(user_id=PERSON, view={"type": "home", "blocks": CARD})
    home = slack.home(PERSON)
    assert home is not None
    assert home.id == again["view"]["id"]
    await slack.user(PERSON).click_in_view("approve", view=home)
    assert pressed == ["home"]


# Shortcuts and commands


async def test_shortcuts(slack: FakeSlack, bolt: AsyncApp) -> None:
    heard: list[Any] = []

    @bolt.shortcut("ask")
    async def ask(ack: Any, shortcut: dict[str, Any]) -> None:
        heard.append(shortcut["user"]["id"])
        await ack()

    @bolt.shortcut("explain")
    async def explain(ack: Any, shortcut: dict[str, Any]) -> None:
        heard.append(shortcut["message"]["text"])
        await ack()

    posted = slack.user(OTHER).post(CHANNEL, "what is this")
    await slack.user(PERSON).shortcut("ask")
    await slack.user(PERSON).message_action(posted, "explain")
    assert heard == [PERSON, "what is this"]


async def test_a_command_and_its_answers(slack: FakeSlack, bolt: AsyncApp) -> None:
    @bolt.command("/ask")
    async def ask(ack: Any, command: dict[str, Any], respond: Any) -> None:
        assert command["user_id"] == PERSON
        assert command["channel_name"] == "general"
        if command["text"] == "loud & clear":
            await ack(text="for all", response_type="in_channel")
        else:
            await ack("for you")
            await respond("later", response_type="ephemeral")

    person = slack.user(PERSON)
    await person.command("/ask", "loud & clear", channel=CHANNEL)
    assert slack.visible(CHANNEL) == ["for all"]
    await person.command("/ask", "softly", channel=CHANNEL)
    await slack.until(lambda: len(slack.whispers(PERSON)) == 2)
    assert sorted(slack.visible(CHANNEL, user=PERSON)) == ["for all", "for you", "later"]


async def test_an_app_has_the_commands_it_has(slack: FakeSlack) -> None:
    slack.app.commands = {"/ask"}
    with pytest.raises(LookupError, match="No app has the command /tell"):
        slack.user(PERSON).command("/tell", channel=CHANNEL)


async def test_the_form_is_one_that_has_to_be_kept_raw(slack: FakeSlack, card: Message) -> None:
    got: list[tuple[str, bytes]] = []

    async def keep(request: web.Request) -> web.Response:
        got.append((request.headers["Content-Type"], await request.read()))
        return web.Response()

    application = web.Application()
    application.router.add_post("/i", keep)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    slack.app.interactivity_url = f"http://127.0.0.1:{runner.addresses[0][1]}/i"
    await slack.user(PERSON).click(card, "approve")
    await runner.cleanup()
    kind, raw = got[0]
    assert kind == "application/x-www-form-urlencoded"
    assert raw.startswith(b"payload=%7B%22type%22%3A%22block_actions%22")
    assert b"Approve+%26+run+%2B1+100%25" in raw
    assert list(parse_qs(raw.decode())) == ["payload"]
