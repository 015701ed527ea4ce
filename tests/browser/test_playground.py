"""The playground drives a real host: what a person does, and what they must be able to see.

The on-call example answers without a model. "investigate" makes it call several tools in sequence.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

pytestmark = pytest.mark.real

SOON = 20_000  # milliseconds; a limit for a broken host, never a wait


def expect(subject: Locator | Page) -> Any:
    return sync_api.expect(subject)


def message_box(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Message", exact=True)


def say(page: Page, text: str) -> None:
    message_box(page).fill(text)
    message_box(page).press("Enter")


def said(page: Page, text: str) -> Locator:
    """The person's own message in the transcript, once the log has it."""
    return page.locator("#log .bubble").filter(has_text=text)


def last_turn(page: Page) -> Locator:
    return page.locator(".turn").last


def running_tool(page: Page) -> Locator:
    return page.locator(".turn[data-status=running] .tool-card").first


def expect_rest(page: Page) -> None:
    """Wait until every turn has ended and nothing is on its way."""
    expect(page.locator(".pending .bubble")).to_have_count(0, timeout=SOON)
    ended = re.compile("completed|failed|cancelled|interrupted")
    expect(last_turn(page)).to_have_attribute("data-status", ended, timeout=SOON)
    expect(page.locator(".turn[data-status=running]")).to_have_count(0, timeout=SOON)


@pytest.fixture
def playground(page: Page, playground_url: str) -> Page:
    page.goto(playground_url)
    expect(page.get_by_text("Say something to start a session.")).to_be_visible()
    return page


def test_a_message_is_answered_and_its_tools_are_shown(playground: Page) -> None:
    say(playground, "Please investigate checkout")
    expect(said(playground, "Please investigate checkout")).to_have_attribute(
        "data-outcome", "started", timeout=SOON
    )
    expect(last_turn(playground)).to_have_attribute("data-status", "completed", timeout=SOON)
    card = last_turn(playground).locator(".tool-card[data-state=done]").first
    expect(card).to_be_visible()
    expect(card.locator(".card-time")).not_to_be_empty()
    expect(last_turn(playground).locator(".answer.final .markdown")).not_to_be_empty()
    expect(playground.locator("#connection")).to_have_attribute("data-state", "live")
    expect(playground).to_have_url(re.compile(r"[?&]sessionId=ses_"))


def test_a_tool_card_opens_to_input_and_output(playground: Page) -> None:
    say(playground, "Please investigate checkout")
    expect(last_turn(playground)).to_have_attribute("data-status", "completed", timeout=SOON)
    card = last_turn(playground).locator(".tool-card[data-state=done]").first
    card.locator("summary").click()
    expect(card.get_by_text("Input", exact=True)).to_be_visible()
    expect(card.get_by_text("Output", exact=True)).to_be_visible()


def test_what_is_added_while_the_agent_works_reaches_it(playground: Page) -> None:
    playground.get_by_role("radio", name="Add").check()
    say(playground, "Please investigate checkout")
    expect(running_tool(playground)).to_be_visible(timeout=SOON)
    say(playground, "Also look at the orders queue")
    expect(said(playground, "Also look at the orders queue")).to_have_attribute(
        "data-outcome", re.compile("steered|prompted"), timeout=SOON
    )
    expect_rest(playground)
    expect(said(playground, "Also look at the orders queue")).to_have_count(1)
    expect(playground.locator(".turn").first).to_have_attribute("data-status", "completed")


def test_an_interruption_ends_the_turn_and_is_answered(playground: Page) -> None:
    say(playground, "Please investigate checkout")
    message_box(playground).fill("Never mind, just say hello")
    expect(running_tool(playground)).to_be_visible(timeout=SOON)
    expect(playground.get_by_role("button", name="Interrupt", exact=True)).to_be_enabled()
    message_box(playground).press("Enter")
    expect(said(playground, "Never mind")).to_have_attribute(
        "data-outcome", "interrupted", timeout=SOON
    )
    first = playground.locator(".turn").first
    expect(first).to_have_attribute("data-status", "cancelled")
    expect(first.locator(".ending")).to_have_attribute("data-code", "preempted")
    expect(last_turn(playground)).to_have_attribute("data-status", "completed", timeout=SOON)


@pytest.mark.parametrize("how", ["button", "escape"])
def test_stop_ends_the_turn_and_the_session_goes_on(playground: Page, how: str) -> None:
    say(playground, "Please investigate checkout")
    expect(running_tool(playground)).to_be_visible(timeout=SOON)
    if how == "button":
        playground.get_by_role("button", name="Stop", exact=True).click()
    else:
        playground.keyboard.press("Escape")
    turn = playground.locator(".turn").first
    expect(turn).to_have_attribute("data-status", "cancelled", timeout=SOON)
    expect(turn.locator(".ending")).to_have_attribute("data-code", "stopped")
    expect(playground.get_by_role("button", name="Stop", exact=True)).to_be_hidden()
    expect(turn.locator(".tool-card[data-state=running]")).to_have_count(0)
    say(playground, "Are you still there?")
    expect(said(playground, "Are you still there?")).to_be_visible(timeout=SOON)
    expect(last_turn(playground)).to_have_attribute("data-status", "completed", timeout=SOON)


@pytest.mark.parametrize(("button", "decision"), [("Approve", "approved"), ("Deny", "denied")])
def test_a_call_waits_for_a_decision_also_after_a_reload(
    playground: Page, button: str, decision: str
) -> None:
    say(playground, "Restart checkout")
    card = last_turn(playground).locator(".tool-card[data-tool=restart_service]")
    expect(card).to_have_attribute("data-state", "waiting", timeout=SOON)
    expect(playground).to_have_url(re.compile(r"[?&]sessionId=ses_"))
    playground.reload()
    card = last_turn(playground).locator(".tool-card[data-tool=restart_service]")
    expect(card).to_have_attribute("data-state", "waiting", timeout=SOON)
    card.get_by_label("Reason").fill("as agreed")
    card.get_by_role("button", name=button).click()
    expect(card.get_by_text(f"Approval: {decision} by")).to_contain_text(
        "(as agreed)", timeout=SOON
    )
    expect(card.get_by_role("button", name="Approve")).to_have_count(0)
    expect(last_turn(playground)).to_have_attribute("data-status", "completed", timeout=SOON)
    said_so = "was restarted" if decision == "approved" else "denied this call: as agreed"
    expect(last_turn(playground).locator(".answer.final")).to_contain_text(said_so)


def test_an_artifact_can_be_downloaded(playground: Page) -> None:
    say(playground, "Write the report for checkout")
    expect(last_turn(playground)).to_have_attribute("data-status", "completed", timeout=SOON)
    with playground.expect_download() as started:
        playground.get_by_role("link", name="Download").click()
    assert started.value.suggested_filename == "incident-checkout.md"
    assert Path(started.value.path()).read_text().startswith("# Incident report: checkout")


def test_a_reload_keeps_the_transcript_and_the_token(playground: Page) -> None:
    say(playground, "Please investigate checkout")
    expect(last_turn(playground)).to_have_attribute("data-status", "completed", timeout=SOON)
    answer = last_turn(playground).locator(".answer.final .markdown").inner_text()
    cards = last_turn(playground).locator(".tool-card").count()
    playground.reload()
    expect(last_turn(playground)).to_have_attribute("data-status", "completed", timeout=SOON)
    expect(said(playground, "Please investigate checkout")).to_have_count(1)
    expect(last_turn(playground).locator(".tool-card")).to_have_count(cards)
    assert last_turn(playground).locator(".answer.final .markdown").inner_text() == answer
    say(playground, "One more thing")
    expect(said(playground, "One more thing")).to_have_attribute(
        "data-outcome", "started", timeout=SOON
    )


def test_a_lost_answer_neither_doubles_a_message_nor_loses_the_token(playground: Page) -> None:
    say(playground, "Hello")
    expect_rest(playground)
    sent: list[dict[str, Any]] = []

    def lose_the_first_answer(route: Route) -> None:
        sent.append(json.loads(route.request.post_data or "{}"))
        if len(sent) == 1:
            route.fetch()
            route.abort()
        else:
            route.continue_()

    follow_up = re.compile(r"/v1/session/ses_[^/]+$")
    playground.route(follow_up, lose_the_first_answer)
    say(playground, "Only once, please")
    expect(said(playground, "Only once, please")).to_have_count(1, timeout=SOON)
    expect_rest(playground)
    say(playground, "And the next one")
    expect(said(playground, "And the next one")).to_have_count(1, timeout=SOON)
    expect_rest(playground)
    expect(said(playground, "Only once, please")).to_have_count(1)
    assert len(sent) == 3
    assert sent[0] == sent[1]
    assert sent[2]["deliveryId"] != sent[0]["deliveryId"]
    assert sent[2]["continuationToken"] != sent[0]["continuationToken"]


def test_the_raw_events_start_with_the_session(playground: Page) -> None:
    say(playground, "Hello")
    expect_rest(playground)
    events = playground.get_by_role("button", name="Events", exact=True)
    expect(events).to_have_attribute("aria-expanded", "false")
    events.click()
    rows = playground.locator("#raw-lines li")
    expect(rows.first).to_have_attribute("data-type", "session.started")
    expect(rows.first.locator(".raw-index")).to_have_text("0")
    expect(playground.locator("#raw-lines li[data-type='turn.completed']")).to_have_count(1)
    playground.get_by_placeholder("Filter").fill("message.received")
    expect(rows).to_have_count(1)


def test_a_session_is_listed_and_can_be_resumed(playground: Page) -> None:
    say(playground, "Hello from the first session")
    expect_rest(playground)
    found = re.search(r"sessionId=([^&]+)", playground.url)
    assert found is not None
    entry = playground.locator(f".session[data-session-id='{found[1]}']")
    playground.get_by_role("button", name="New session").click()
    expect(said(playground, "Hello from the first session")).to_have_count(0)
    expect(entry).to_be_visible(timeout=SOON)
    entry.click()
    expect(said(playground, "Hello from the first session")).to_be_visible(timeout=SOON)
    expect(message_box(playground)).to_be_enabled()


def test_a_tab_without_the_token_can_only_read(
    playground: Page, chromium: Any, playground_url: str
) -> None:
    say(playground, "Hello")
    expect_rest(playground)
    with chromium.new_context() as other:
        reader = other.new_page()
        reader.goto(playground.url)
        expect(said(reader, "Hello")).to_be_visible(timeout=SOON)
        expect(reader.get_by_text("does not hold the session's continuation token")).to_be_visible()
        expect(message_box(reader)).to_be_disabled()


def test_an_unknown_session_is_said_to_be_unknown(page: Page, playground_url: str) -> None:
    page.goto(f"{playground_url}?sessionId=ses_00000000000000000000000000")
    expect(page.locator("#connection")).to_have_attribute("data-state", "refused", timeout=SOON)
    expect(page.locator("#banner-text")).not_to_be_empty()
    expect(message_box(page)).to_be_disabled()


def test_the_page_fits_a_narrow_screen(playground: Page) -> None:
    playground.set_viewport_size({"width": 380, "height": 720})
    say(playground, "Please investigate checkout")
    expect(last_turn(playground)).to_have_attribute("data-status", "completed", timeout=SOON)
    for area in ("document.documentElement", "document.querySelector('#scroller')"):
        assert playground.evaluate(f"{area}.scrollWidth") <= 380
    playground.get_by_role("button", name="Open the menu").click()
    expect(playground.get_by_role("button", name="New session")).to_be_in_viewport()
    playground.keyboard.press("Escape")
    expect(playground.get_by_role("button", name="New session")).not_to_be_in_viewport()


def test_markdown_cannot_make_markup(playground: Page) -> None:
    html = playground.evaluate(
        """async (text) => {
            const url = new URL("playground/assets/markdown.js", location.href);
            const { renderMarkdown } = await import(url);
            const place = document.createElement("div");
            place.append(renderMarkdown(text));
            return place.innerHTML;
        }""",
        "<img src=x onerror=alert(1)> [a](javascript:alert(1)) [b](https://example.com/?q=1) **c**",
    )
    assert "<img" not in html
    assert 'href="javascript' not in html
    link = '<a href="https://example.com/?q=1" target="_blank" rel="noopener noreferrer">b</a>'
    assert link in html
    assert "<strong>c</strong>" in html


def test_lines_are_cut_at_newline_bytes_only(playground: Page) -> None:
    """Separators of Unicode stay inside a line, and an incomplete last line is discarded."""
    seen = playground.evaluate(
        """async () => {
            const url = new URL("playground/assets/stream.js", location.href);
            const { LineSplitter } = await import(url);
            const bytes = new TextEncoder().encode('"ü\\u2028\\u{1F389}"\\n\\n  \\n"b"\\n"cut o');
            const results = [];
            for (let size = 1; size <= bytes.length; size += 1) {
                const splitter = new LineSplitter();
                const lines = [];
                for (let at = 0; at < bytes.length; at += size)
                    lines.push(...splitter.push(bytes.slice(at, at + size)));
                results.push(JSON.stringify(lines.map((line) => JSON.parse(line))));
            }
            return [...new Set(results)];
        }"""
    )
    assert [json.loads(result) for result in seen] == [["ü\u2028\U0001f389", "b"]]
