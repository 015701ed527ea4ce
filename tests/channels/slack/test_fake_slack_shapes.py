"""The pure parts of FakeSlack: blocks, what people read, what forms send, several workspaces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from threadline.testing import ManualClock
from threadline_slack.testing import DEFAULTS, FakeSlack, Message, View
from threadline_slack.testing.blocks import check_blocks, identified
from threadline_slack.testing.forms import action, filled_in, find, values_of
from threadline_slack.testing.wire import mentions, rich_text, visible_text

CHANNEL, PERSON, BOT = DEFAULTS["channel"], DEFAULTS["person"], DEFAULTS["bot_user"]
PLAIN = {"type": "plain_text", "text": "x"}
BUTTON = {"type": "button", "action_id": "go", "text": PLAIN}


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with FakeSlack(clock=ManualClock()) as running:
        yield running


# Blocks


@pytest.mark.parametrize(
    "block",
    [
        {"type": "section", "text": {"type": "mrkdwn", "text": "x" * 3_000}},
        {"type": "section", "fields": [PLAIN, PLAIN], "accessory": BUTTON},
        {"type": "header", "text": PLAIN},
        {"type": "markdown", "text": "x" * 12_000},
        {"type": "context", "elements": [PLAIN, {"type": "image", "alt_text": "x"}]},
        {"type": "actions", "elements": [BUTTON]},
        {"type": "image", "image_url": "https://x.test/i.png", "alt_text": "x"},
        {"type": "input", "label": PLAIN, "element": {"type": "plain_text_input"}},
        {"type": "rich_text", "elements": []},
        {"type": "table", "rows": [[{"type": "raw_text", "text": "x"}] * 20] * 100},
        {"type": "plan", "title": "x"},
        {"type": "task_card", "task_id": "1", "title": "x"},
        {"type": "divider"},
    ],
    ids=lambda block: block["type"],
)
def test_a_block_within_its_limits(block: dict[str, Any]) -> None:
    assert check_blocks([block]) == []


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ({"type": "section", "fields": [PLAIN] * 11}, "no more than 10"),
        ({"type": "section", "text": PLAIN, "accessory": {}}, "object with a type"),
        ({"type": "section", "text": {"type": "markdown", "text": "x"}}, "unsupported type"),
        ({"type": "markdown"}, "missing required field"),
        ({"type": "context", "elements": []}, "missing required field"),
        ({"type": "context", "elements": [PLAIN] * 11}, "no more than 10"),
        ({"type": "actions"}, "missing required field"),
        ({"type": "actions", "elements": [{"type": "x"}] * 26}, "no more than 25"),
        ({"type": "actions", "elements": [BUTTON, BUTTON]}, "action_id already exists"),
        ({"type": "actions", "elements": [{**BUTTON, "value": "x" * 2_001}]}, "value must"),
        ({"type": "actions", "elements": [{**BUTTON, "url": "x" * 3_001}]}, "url must"),
        ({"type": "actions", "elements": [{**BUTTON, "style": "big"}]}, "style"),
        ({"type": "actions", "elements": [{**BUTTON, "action_id": "x" * 256}]}, "action_id"),
        ({"type": "table", "rows": []}, "missing required field"),
        ({"type": "image", "image_url": "x"}, "alt_text"),
        ({"type": "image", "alt_text": "x"}, "image_url"),
        ({"type": "input", "label": PLAIN}, "object with a type"),
        ({"type": "rich_text"}, "missing required field"),
        ({"type": "plan"}, "title"),
        ({"type": "task_card", "task_id": "1"}, "title"),
        ({"type": "divider", "block_id": "x" * 256}, "block_id"),
        ({"type": ["section"]}, "unsupported type"),
        ("section", "array of objects"),
    ],
)
def test_a_block_beyond_its_limits(block: Any, problem: str) -> None:
    assert problem in " ".join(check_blocks([block]))


def test_a_view_has_room_for_a_hundred() -> None:
    assert check_blocks([{"type": "divider"}] * 100, view=True) == []
    assert check_blocks([{"type": "divider"}] * 101, view=True)
    assert check_blocks(None)


def test_blocks_and_buttons_get_ids() -> None:
    bare = {name: value for name, value in BUTTON.items() if name != "action_id"}
    made = identified([{"type": "actions", "elements": [bare]}, {"type": "divider"}])
    ids = [made[0]["block_id"], made[0]["elements"][0]["action_id"], made[1]["block_id"]]
    assert len(set(ids)) == 3


# Text


def test_a_text_as_the_editor_keeps_it() -> None:
    text = "<@U1> a &lt; b <#C1|x> <!here> <!subteam^S1|@oncall> <https://x.test|page>"
    elements = rich_text(text)[0]["elements"][0]["elements"]
    assert elements == [
        {"type": "user", "user_id": "U1"},
        {"type": "text", "text": " a < b "},
        {"type": "channel", "channel_id": "C1"},
        {"type": "text", "text": " "},
        {"type": "broadcast", "range": "here"},
        {"type": "text", "text": " "},
        {"type": "usergroup", "usergroup_id": "S1"},
        {"type": "text", "text": " "},
        {"type": "link", "url": "https://x.test", "text": "page"},
    ]
    assert rich_text("") == []
    assert mentions("<@U1|the name> and <@W2>, not <#C1>") == ["U1", "W2"]


def test_what_people_read() -> None:
    def read(**content: Any) -> str:
        return visible_text(Message("C", "1.0", "T", **{"text": "fallback", **content}))

    assert read() == "fallback"
    text = "<@U1> see <#C1> <!here> <!subteam^S1> <https://x.test|page>"
    assert read(blocks=rich_text(text)) == "<@U1> see <#C1> <!here> <!subteam^S1> page"
    emoji = {"type": "rich_text_section", "elements": [{"type": "emoji", "name": "wave"}]}
    assert read(blocks=[{"type": "rich_text", "elements": [emoji]}]) == ":wave:"
    blocks = [
        {"type": "header", "text": PLAIN},
        {"type": "actions", "elements": [{**BUTTON, "value": "secret", "confirm": {"text": "?"}}]},
        {"type": "image", "alt_text": "a plot", "image_url": "https://x.test/i.png"},
    ]
    assert read(blocks=blocks) == "x\nx\na plot"
    attachment = {
        "fallback": "unseen",
        "pretext": "Alert",
        "title": "CPU",
        "fields": [{"title": "host", "value": "db1", "short": True}],
    }
    assert read(text="", attachments=[attachment]) == "Alert\nCPU\nhost\ndb1"
    assert read(text="", attachments=[{"fallback": "seen"}]) == "seen"


# Forms


def _element(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "action_id": "a", "block_id": "b", **more}


OPTIONS = [{"text": PLAIN, "value": "1"}, {"text": PLAIN, "value": "2"}]


@pytest.mark.parametrize(
    ("element", "value", "sent"),
    [
        (_element("checkboxes", options=OPTIONS), ["1", "2"], {"selected_options": OPTIONS}),
        (_element("multi_static_select", options=OPTIONS), "2", {"selected_options": OPTIONS[1:]}),
        (_element("overflow", options=OPTIONS), "1", {"selected_option": OPTIONS[0]}),
        (
            _element("static_select", option_groups=[{"options": OPTIONS}]),
            "2",
            {"selected_option": OPTIONS[1]},
        ),
        (_element("users_select"), "U1", {"selected_user": "U1"}),
        (_element("multi_users_select"), ["U1"], {"selected_users": ["U1"]}),
        (_element("datepicker", initial_date="2026-01-01"), None, {"selected_date": "2026-01-01"}),
        (_element("plain_text_input", initial_value="old"), None, {"value": "old"}),
        (_element("checkboxes", initial_options=OPTIONS), None, {"selected_options": OPTIONS}),
    ],
)
def test_what_an_element_sends(element: dict[str, Any], value: Any, sent: dict[str, Any]) -> None:
    made = action(element, value, "1.0")
    assert {name: made[name] for name in sent} == sent
    assert (made["action_id"], made["block_id"], made["action_ts"]) == ("a", "b", "1.0")


def test_an_external_choice_needs_no_options() -> None:
    made = action(_element("external_select"), "anything", "1.0")
    assert made["selected_option"]["value"] == "anything"


def test_a_form_as_it_is_shown_and_filled_in() -> None:
    blocks = [
        {
            "type": "input",
            "block_id": "b",
            "label": PLAIN,
            "element": {"type": "plain_text_input", "action_id": "a", "initial_value": "old"},
        },
        {"type": "actions", "block_id": "c", "elements": [BUTTON]},
    ]
    view = View("V1", "T", "A", "B", "U", {"blocks": blocks}, "h", "V1")
    assert values_of(view) == {"b": {"a": {"type": "plain_text_input", "value": "old"}}}
    assert filled_in(view, {"a": "new"})["b"]["a"]["value"] == "new"
    with pytest.raises(LookupError, match="no input z"):
        filled_in(view, {"z": "?"})


def test_of_several_buttons_the_one_with_the_value() -> None:
    elements = [{**BUTTON, "value": value, "block_id": "b"} for value in ("1", "2")]
    assert find(elements, "go", "2")["value"] == "2"
    with pytest.raises(LookupError, match="there is: go, go"):
        find(elements, "stop", None)
    feedback = _element("feedback_buttons", positive_button={"value": "1"})
    with pytest.raises(LookupError, match="no feedback button"):
        action(feedback, "3", "1.0")


# Several workspaces


async def test_one_app_in_two_workspaces(slack: FakeSlack) -> None:
    slack.app.request_url = "http://127.0.0.1:9/"
    slack.options.retries = ()
    slack.add_team("T0SECOND01")
    slack.add_user("U0SECOND01", team="T0SECOND01")
    second = slack.install(slack.app, team="T0SECOND01")
    slack.add_channel(
        "C0SECOND01", "general", members=[second.bot_user, "U0SECOND01"], teams=["T0SECOND01"]
    )
    slack.user(PERSON).post(CHANNEL, "first")
    slack.user("U0SECOND01").post("C0SECOND01", f"<@{second.bot_user}> <@{BOT}> second")
    told = [(one.event["text"], one.body["authorizations"][0]) for one in slack.deliveries()]
    assert [(text.split()[-1], one["team_id"], one["user_id"]) for text, one in told] == [
        ("first", DEFAULTS["team"], BOT),
        ("second", "T0SECOND01", second.bot_user),
        ("second", "T0SECOND01", second.bot_user),
    ]
    first = AsyncWebClient(token=slack.app.bot_token, base_url=slack.api_url)
    other = AsyncWebClient(token=second.token, base_url=slack.api_url)
    with pytest.raises(SlackApiError, match="channel_not_found"):
        await first.chat_postMessage(channel="C0SECOND01", text="x")
    await other.chat_postMessage(channel="C0SECOND01", text="x")
    assert (await other.auth_test())["team_id"] == "T0SECOND01"
    person = slack.user("U0SECOND01")
    root = person.open_assistant_thread()
    assert root.user == second.bot_user
    assert person.dm() == root.channel
    assert person.shortcut("ask").payload["team"]["id"] == "T0SECOND01"
    person.command("/ask", channel="C0SECOND01")
    assert slack.interactions.all[-1].payload["team_id"] == "T0SECOND01"


async def test_what_cannot_be_put_in(slack: FakeSlack) -> None:
    with pytest.raises(ValueError, match="no team"):
        slack.add_user("U0LOST00001", team="T0NOWHERE1")
    with pytest.raises(ValueError, match="already"):
        slack.add_user(PERSON)
    with pytest.raises(ValueError, match="no U0NOBODY001"):
        slack.add_channel("C0NEW00001", "new", members=["U0NOBODY001"])
    with pytest.raises(ValueError, match="already"):
        slack.add_channel(CHANNEL, "again")
    with pytest.raises(ValueError, match="no team"):
        slack.install(slack.app, enterprise="E0NOWHERE1")
    app = slack.add_app("A0FRESH001", "fresh")
    with pytest.raises(LookupError, match="installed nowhere"):
        app.bot_token  # noqa: B018
    with pytest.raises(LookupError, match="no app"):
        slack.state.app("A0NOWHERE1")
    with pytest.raises(LookupError, match="no bot"):
        slack.bot("B0NOWHERE1")
    with pytest.raises(LookupError, match="no address"):
        await slack.verify_url()
