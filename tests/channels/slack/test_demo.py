"""The page beside FakeSlack: what it shows, what a person can do there, and what it refuses."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from threadline.errors import Unavailable
from threadline_slack.setup.demo.page import Page
from threadline_slack.setup.demo.paint import mrkdwn, painted
from threadline_slack.setup.demo.run import point
from threadline_slack.setup.demo.servers import Fake, Local
from threadline_slack.testing import DEFAULTS, FakeSlack

CHANNEL, PERSON, OTHER, BOT = (DEFAULTS[key] for key in ("channel", "person", "other", "bot_user"))


def name(identity: str) -> str:
    return {"U1": "ada", "C1": "launch"}.get(identity, identity)


# Painting


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("*bold* _leaning_ ~gone~", "<b>bold</b> <i>leaning</i> <s>gone</s>"),
        ("2 * 3 * 4 and a_b_c", "^2 . 3 . 4 and a_b_c$"),
        ("<@U1> in <#C1|old>", r"@ada.* in .*#launch"),
        ("<https://x.example/?a=1&amp;b=2|there>", 'href="https://x.example/\\?a=1&amp;b=2"'),
        ("`a *b* <c>`", "<code>a \\*b\\* &lt;c&gt;</code>"),
        ("```\nx < y\n```", "<pre>x &lt; y\n</pre>"),
        ("&gt; said\nthen", "<blockquote>said</blockquote>then"),
        ("one\ntwo", "one<br>two"),
        (":white_check_mark: :no_such:", "✅ :no_such:"),
        ("<!here>", "@here"),
    ],
)
def test_mrkdwn(text: str, shown: str) -> None:
    assert re.search(shown, mrkdwn(text, name)), mrkdwn(text, name)


HOSTILE = [
    "<script>alert(1)</script>",
    "&lt;img src=x onerror=alert(1)&gt;",
    "<javascript:alert(1)|press>",
    'x" onmouseover="alert(1)',
    "<@U1><img src=x>",
    "[press](javascript:alert(1))",
    '<https://x.example/" onclick=alert(1)|a>',
    "\x007\x00 <@U1>",
    "<https://x.example|&lt;img src=x onerror=alert(1)&gt;>",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("kind", ["text", "markdown", "section", "header", "button", "name"])
def test_nothing_in_a_message_is_markup(text: str, kind: str) -> None:
    block: dict[str, Any] = {
        "text": {},
        "markdown": {"type": "markdown", "text": text},
        "section": {"type": "section", "text": {"type": "mrkdwn", "text": text}},
        "header": {"type": "header", "text": {"type": "plain_text", "text": text}},
        "button": {"type": "actions", "elements": [{"type": "button", "text": {"text": text}}]},
        "name": {"type": "section", "text": {"type": "mrkdwn", "text": "<@U9>"}},
    }[kind]
    message = {"text": text, "blocks": [block] if block else []}
    parts = painted(message, lambda identity: text)
    for shown in (part["html"] for part in parts if "html" in part):
        tags = re.findall(r"<[^>]*>", shown)
        allowed = r'</?(b|i|s|p|code|pre|h3|br|a|em|span|blockquote)( /)?|<span class="mention"'
        link = r'<a href="https?://[^"]*"( rel="noreferrer" target="_blank")?>'
        for tag in tags:
            assert re.fullmatch(rf"({allowed})>|{link}", tag), shown


def test_blocks_are_shown_in_order() -> None:
    message = {
        "text": "fallback",
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": "Title"}},
            {"type": "markdown", "text": "**so** <@U1>\n\n| a |\n|---|\n| 1 |"},
            {"type": "context", "elements": [{"type": "mrkdwn", "text": "small"}]},
            {
                "type": "actions",
                "elements": [
                    {
                        "type": "button",
                        "action_id": "go",
                        "value": "7",
                        "style": "primary",
                        "text": {"type": "plain_text", "text": "Go"},
                    }
                ],
            },
        ],
    }
    title, table, small, buttons = painted(message, name)
    assert title == {"html": "<h3>Title</h3>"}
    assert "<strong>so</strong>" in table["html"]
    assert "@ada" in table["html"]
    assert "<td>1</td>" in table["html"]
    assert small == {"html": "<small>small</small>"}
    assert buttons["buttons"] == [{"action": "go", "value": "7", "label": "Go", "style": "primary"}]


def test_an_attachment_is_shown() -> None:
    message = {"text": "", "attachments": [{"title": "Alert", "text": "*down*", "fallback": "f"}]}
    (part,) = painted(message, name)
    assert part == {"html": "<blockquote>Alert<br><b>down</b></blockquote>"}


# The page


@dataclass
class Browser:
    """Who opens the page."""

    slack: FakeSlack
    page: Page
    http: aiohttp.ClientSession

    async def act(self, what: str, **body: Any) -> tuple[int, dict[str, Any]]:
        body = {"user": PERSON, "channel": CHANNEL, **body}
        async with self.http.post(f"{self.page.url}/{what}", json=body) as answer:
            return answer.status, await answer.json()

    async def view(self, **query: str) -> dict[str, Any]:
        async with self.http.get(f"{self.page.url}/view", params=query) as answer:
            found: dict[str, Any] = await answer.json()
            return found

    @property
    def bot(self) -> AsyncWebClient:
        return AsyncWebClient(self.slack.app.bot_token, self.slack.api_url)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with FakeSlack() as slack, aiohttp.ClientSession() as http:
        page = Page(slack)
        await page.start()
        yield Browser(slack, page, http)
        await page.close()


async def test_the_page_and_its_parts(browser: Browser) -> None:
    for path, kind in (("", "text/html"), ("page.js", "text/javascript"), ("page.css", "text/css")):
        async with browser.http.get(f"{browser.page.url}/{path}") as answer:
            assert answer.status == 200
            assert answer.content_type == kind
            assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    async with browser.http.get(f"{browser.page.url}/page.py") as answer:
        assert answer.status == 404


async def test_a_name_that_is_typed_is_a_mention(browser: Browser) -> None:
    text = "@agent is 1 < 2? ask dev1@x.example or @agents"
    assert await browser.act("post", text=text) == (200, {"ok": True})
    (message,) = browser.slack.messages(CHANNEL)
    assert message.text == f"<@{BOT}> is 1 &lt; 2? ask dev1@x.example or @agents"
    view = await browser.view()
    assert view["agent"] == "agent"
    (shown,) = view["messages"]
    assert (shown["author"], shown["replies"], shown["bot"]) == ("dev1", 0, False)


async def test_a_thread_with_an_answer_and_its_button(browser: Browser) -> None:
    root = browser.slack.user(PERSON).post(CHANNEL, "deploy?").ts
    button = {
        "type": "button",
        "action_id": "go",
        "value": "1",
        "text": {"type": "plain_text", "text": "Go"},
    }
    blocks = [{"type": "actions", "elements": [button]}]
    await browser.bot.chat_postMessage(channel=CHANNEL, thread_ts=root, text="Go?", blocks=blocks)
    await browser.act("post", text="why", thread=root)
    view = await browser.view(user=OTHER, channel=CHANNEL, thread=root)
    assert [one["author"] for one in view["thread"]] == ["dev1", "agent", "dev1"]
    assert view["messages"][0]["replies"] == 2
    asked = view["thread"][1]
    (part,) = asked["parts"]
    (pressed,) = part["buttons"]
    status, _ = await browser.act(
        "click", user=OTHER, ts=asked["ts"], action=pressed["action"], value=pressed["value"]
    )
    assert status == 200
    (click,) = browser.slack.interactions.all
    assert click.payload["user"]["id"] == OTHER
    assert click.payload["actions"][0]["value"] == "1"


async def test_a_file(browser: Browser) -> None:
    file = {"name": "a.csv", "content": base64.b64encode(b"a,b").decode()}
    assert (await browser.act("post", text="look", file=file))[0] == 200
    (message,) = browser.slack.messages(CHANNEL)
    assert [one.content for one in message.files] == [b"a,b"]
    assert (await browser.view())["messages"][0]["files"] == ["a.csv"]


async def test_whispers_are_for_one(browser: Browser) -> None:
    await browser.bot.chat_postEphemeral(channel=CHANNEL, user=OTHER, text="for you")
    assert (await browser.view(user=PERSON))["messages"] == []
    (shown,) = (await browser.view(user=OTHER, channel=CHANNEL))["messages"]
    assert shown["whisper"] is True


async def test_the_status_and_the_stop_button(browser: Browser) -> None:
    root = browser.slack.user(PERSON).post(CHANNEL, "work").ts
    browser.slack.app.request_url = f"{browser.page.url}/nowhere"
    body = {"channel_id": CHANNEL, "thread_ts": root, "status": "processing"}
    await browser.bot.api_call("agents.sessions.setStatus", json=body)
    view = await browser.view(channel=CHANNEL, thread=root)
    assert view["working"] is True
    assert (await browser.act("stop", thread=root))[0] == 200
    (stopped,) = browser.slack.deliveries("agent_session_stopped")
    assert stopped.event["thread_ts"] == root


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("post", {"user": "U0NOBODY01", "text": "x"}),
        ("post", {"channel": "C0NOWHERE1", "text": "x"}),
        ("post", {"text": "x", "file": {"name": "a", "content": "no base64!"}}),
        ("click", {"ts": "1.0", "action": "go"}),
        ("stop", {"thread": "1.0"}),
    ],
)
async def test_what_cannot_be_is_said_so(browser: Browser, what: str, body: Any) -> None:
    status, said = await browser.act(what, **body)
    assert status == 400
    assert said["error"]
    assert browser.slack.messages(CHANNEL) == []


async def test_another_page_cannot_post(browser: Browser) -> None:
    form = {"user": PERSON, "channel": CHANNEL, "text": "x"}
    async with browser.http.post(f"{browser.page.url}/post", data=form) as answer:
        assert answer.status == 415
    assert browser.slack.messages(CHANNEL) == []


async def test_a_conversation_of_others_is_not_shown(browser: Browser) -> None:
    assert "error" in await browser.view(user=OTHER, channel=DEFAULTS["dm"])


# The server of a demo


async def test_a_fake_names_the_bot_and_the_people() -> None:
    fake = Fake("launch-helper")
    try:
        await fake.start()
        view = fake._page.view("", "", "")
        assert view["agent"] == "launch-helper"
        assert [one["name"] for one in view["people"]] == ["Ada", "Grace"]
        other = fake._page.view(OTHER, "", "")
        assert "launch-helper" in [one["name"] for one in other["channels"]]
        assert set(fake.environment) == {"BOT_TOKEN", "APP_TOKEN", "API_URL"}
    finally:
        await fake.close()


async def test_a_port_that_is_taken_is_said_so() -> None:
    first = Fake("one")
    await first.start()
    try:
        second = Fake("two", int(first.url.rpartition(":")[2]))
        with pytest.raises(Unavailable, match="cannot be had"):
            await second.start()
        await second.close()
    finally:
        await first.close()


async def test_markdown_blocks_become_sections(browser: Browser) -> None:
    client = browser.bot
    Local(Path("local-slack"), "launch-helper").adapt(client)
    button = {"type": "button", "action_id": "go", "text": {"type": "plain_text", "text": "Go"}}
    blocks: list[dict[str, Any]] = [
        {"type": "markdown", "text": "**so**"},
        {"type": "actions", "elements": [button]},
    ]
    await client.chat_postMessage(channel=CHANNEL, text="so", blocks=blocks)
    await client.conversations_history(channel=CHANNEL)
    (message,) = browser.slack.messages(CHANNEL)
    assert message.blocks is not None
    section, actions = message.blocks
    assert (section["type"], section["text"]["text"]) == ("section", "*so*")
    assert actions["type"] == "actions"


async def test_a_program_that_ends_is_said_so(tmp_path: Path) -> None:
    program = tmp_path / "slack"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    server = Local(program, "launch-helper")
    with pytest.raises(Unavailable, match="slack does not answer"):
        await server.start()
    await server.close()


def test_a_demo_leaves_no_variable_of_a_real_workspace() -> None:
    environ = {
        "SLACK_BOT_TOKEN": "xoxb-real",
        "SLACK_SIGNING_SECRET": "real",
        "TRIAGE_SLACK_BOT_TOKEN": "xoxb-other",
        "HOME": "/root",
    }
    point(environ, "", {"BOT_TOKEN": "xoxb-demo", "API_URL": "http://127.0.0.1:1/api/"})
    assert environ == {
        "SLACK_BOT_TOKEN": "xoxb-demo",
        "SLACK_API_URL": "http://127.0.0.1:1/api/",
        "TRIAGE_SLACK_BOT_TOKEN": "xoxb-other",
        "HOME": "/root",
    }
