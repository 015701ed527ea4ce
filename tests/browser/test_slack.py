"""A person in a Slack's page: the local Slack server's, and the small one beside FakeSlack.

The agent is examples/slack-helper, as ``make demo-slack`` serves it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
SOON = 30_000  # milliseconds; a limit for a broken host, never a wait
UNSET = ("THREADLINE_", "ANTHROPIC_", "OPENAI_", "SLACK_")
BOT = "launch-helper"


def expect(subject: Locator | Page) -> Any:
    return sync_api.expect(subject)


def serving(*options: str) -> Iterator[str]:
    """Run the demo; yields the address of its page."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(UNSET)}
    command = [sys.executable, "-m", "threadline", "slack", "demo", "examples/slack-helper"]
    with subprocess.Popen(
        [*command, *options],
        cwd=ROOT,
        env=env | {"SLACK_HELPER_PACE": "0.2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = ""
        try:
            while "Ctrl-C ends both." not in said:
                line = process.stdout.readline()
                assert line, said
                said += line
            found = re.search(r"is at (http://127\.0\.0\.1:\d+)$", said, re.M)
            assert found is not None, said
            yield found[1]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    """The page of the local Slack server."""
    installed = subprocess.run(
        [ROOT / "tests" / "real" / "slack" / "install.sh"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert installed.returncode == 0, installed.stderr
    yield from serving("--server", installed.stdout.strip())


@pytest.fixture(scope="module")
def fake_url() -> Iterator[str]:
    """The page beside FakeSlack."""
    yield from serving()


# The local Slack server's page


def mention(page: Page, text: str) -> Locator:
    """Mention the agent as its page offers it; returns the message."""
    box = page.locator("textarea.composer-input").first
    box.press_sequentially(f"@{BOT[:6]}")
    page.locator(".mention-option", has_text=BOT).click()
    box.press_sequentially(f" {text}")
    page.locator(".composer-send").first.click()
    posted = page.locator(".msg", has_text=text).first
    expect(posted).to_be_visible(timeout=SOON)
    posted.hover()
    posted.get_by_title("Reply in thread").click()
    return posted


def replies(page: Page) -> Locator:
    """What the agent said in the thread that is open."""
    return page.locator(".thread-pane .msg").filter(has=page.locator(".badge-app"))


def test_a_mention_has_one_answer_in_its_thread(page: Page, server_url: str) -> None:
    page.goto(server_url)
    mention(page, "check the build")
    expect(replies(page)).to_have_count(1, timeout=SOON)
    expect(replies(page)).to_contain_text("Version 4.2.0 is built")
    expect(page.locator(".thread-pane")).to_contain_text("1 reply")


def test_a_button_approves(page: Page, server_url: str) -> None:
    page.goto(server_url)
    mention(page, "move the launch to Monday")
    page.locator(".thread-pane").get_by_role("button", name="Approve").click(timeout=SOON)
    answer = replies(page).filter(has_text="The launch is now on Monday")
    expect(answer).to_have_count(1, timeout=SOON)
    expect(replies(page).first).to_contain_text("Approved by @ada")
    expect(page.locator(".thread-pane").get_by_role("button", name="Approve")).to_have_count(0)


# The page beside FakeSlack


def say(page: Page, text: str) -> Locator:
    """Write to the channel, and open the thread; returns what is in it."""
    page.get_by_role("textbox", name="Message").fill(text)
    page.get_by_role("textbox", name="Message").press("Enter")
    posted = page.locator("#messages .message").last
    expect(posted).to_contain_text(text.partition(" ")[2], timeout=SOON)
    posted.locator(".open").click()
    thread = page.locator("#replies .message")
    expect(thread.first).to_contain_text(text.partition(" ")[2])
    return thread


def reply(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Reply").fill(text)
    page.get_by_role("textbox", name="Reply").press("Enter")


def of_bot(thread: Locator, page: Page) -> Locator:
    return thread.filter(has=page.locator(".badge"))


def test_a_thread_on_the_small_page(page: Page, fake_url: str) -> None:
    page.goto(fake_url)
    thread = say(page, f"@{BOT} are we ready to launch?")
    expect(page.locator("#status")).to_contain_text("is using", timeout=SOON)
    reply(page, "and what about docs?")
    answer = of_bot(thread, page)
    expect(answer).to_have_count(1, timeout=SOON)
    expect(answer).to_contain_text("Not ready: docs and support.")
    expect(answer).to_contain_text("You also asked: and what about docs?")
    expect(answer.locator("table")).to_be_visible()
    expect(page.locator("#status")).to_be_hidden(timeout=SOON)
    expect(page.locator("#messages .open").last).to_have_text("2 replies", timeout=SOON)


def test_a_stop_on_the_small_page(page: Page, fake_url: str) -> None:
    page.goto(fake_url)
    thread = say(page, f"@{BOT} check everything")
    expect(page.locator("#status")).to_contain_text("is using", timeout=SOON)
    reply(page, "stop")
    expect(of_bot(thread, page)).to_have_text([re.compile("Stopped")], timeout=SOON)


def test_another_person_approves_on_the_small_page(page: Page, fake_url: str) -> None:
    page.goto(fake_url)
    say(page, f"@{BOT} move the launch to Tuesday")
    expect(page.get_by_role("button", name="Approve")).to_be_visible(timeout=SOON)
    page.get_by_label("You are").select_option("Grace")
    page.locator("#messages .message", has_text="Tuesday").locator(".open").click()
    page.get_by_role("button", name="Approve").click()
    thread = page.locator("#replies .message")
    expect(thread.last).to_contain_text("The launch is now on Tuesday", timeout=SOON)
    expect(of_bot(thread, page).first).to_contain_text("Approved by @grace")
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)


def test_a_file_on_the_small_page(page: Page, fake_url: str, tmp_path: Path) -> None:
    table = tmp_path / "costs.csv"
    table.write_text("item,costs\nstage,1200.50\nlights,800\n")
    page.goto(fake_url)
    page.locator("#composer input[type=file]").set_input_files(table)
    thread = say(page, f"@{BOT} add this up")
    expect(thread.first.locator(".file")).to_contain_text("costs.csv")
    expect(of_bot(thread, page).last).to_contain_text("adds up to 2,000.50", timeout=SOON)


def test_a_direct_message_on_the_small_page(page: Page, fake_url: str) -> None:
    page.goto(fake_url)
    page.get_by_role("button", name=BOT, exact=True).click()
    thread = say(page, "please check the build")
    expect(of_bot(thread, page)).to_contain_text("Version 4.2.0", timeout=SOON)
    page.get_by_role("button", name="Close the thread").click()
    expect(page.locator("#thread")).to_be_hidden()
