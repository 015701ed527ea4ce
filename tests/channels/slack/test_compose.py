"""Text out, whole: Markdown to messages within Slack's limits."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from tests.channels.slack.hostile import MARKDOWN, live_in_mrkdwn, live_tokens

from threadline_slack.words.chunks import length
from threadline_slack.words.compose import Form, Message, compose

FORMS: list[Form] = ["markdown", "mrkdwn"]
SLACK = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def inside(block: dict[str, Any]) -> str:
    text = block["text"]
    return str(text if isinstance(text, str) else text["text"])


def everything(messages: list[Message]) -> str:
    return "\n".join(inside(block) for message in messages for block in message.blocks)


def expanded(source: str) -> int:
    """Return how many blocks Slack makes of Markdown: one a heading, rule, table or run between."""
    count, run = 0, False
    for token in SLACK.parse(source):
        if token.level == 0 and token.nesting >= 0:
            breaks = token.type in ("heading_open", "hr", "table_open")
            count += 1 if breaks or not run else 0
            run = not breaks
    return count


@pytest.mark.parametrize("form", FORMS)
class TestLimits:
    """No message is refused."""

    @given(MARKDOWN, st.integers(1, 400))
    def test_every_message_is_within_every_limit(self, form: Form, text: str, times: int) -> None:
        for message in compose(text * times, form=form):
            assert 0 < length(message.text) <= 4_000
            assert message.text.strip()
            assert 1 <= len(message.blocks) <= 50
            texts = [inside(block) for block in message.blocks]
            assert all(text.strip() for text in texts)
            if form == "mrkdwn":
                assert all(length(text) <= 3_000 for text in texts)
                assert live_in_mrkdwn("\n".join(texts)) == []
            else:
                assert sum(map(length, texts)) <= 12_000
                assert expanded(texts[0]) <= 50
                assert live_tokens(texts[0]) == []

    def test_paragraphs_arrive_in_order_and_once(self, form: Form) -> None:
        paragraphs = [f"{number} " + "word " * 180 for number in range(40)]
        messages = compose("\n\n".join(paragraphs), form=form)
        assert everything(messages).split() == "".join(paragraphs).split()

    def test_an_unbroken_text_arrives_whole(self, form: Form) -> None:
        messages = compose("x" * 13_000, form=form)
        assert everything(messages).replace("\n", "") == "x" * 13_000

    def test_nothing_to_say_is_no_message(self, form: Form) -> None:
        assert compose("", form=form) == compose(" \n\n", form=form) == []

    def test_a_smaller_limit(self, form: Form) -> None:
        messages = compose("word " * 1_000, form=form, limit=500)
        assert all(length(message.text) <= 500 for message in messages)
        assert len(messages) >= 10


class TestMarkdown:
    """The default form."""

    def test_a_message_has_a_block_and_a_text(self) -> None:
        assert compose("# Hi\n\n- **a** <@U1> <!here>", mentions={"U1"}) == [
            Message(
                "*Hi*\n• *a* <@U1> @\u200bhere",
                [{"type": "markdown", "text": "# Hi\n\n- **a** <@U1> @\u200bhere"}],
            )
        ]

    def test_the_text_of_a_long_block_is_its_beginning(self) -> None:
        [message] = compose("word " * 2_000)
        assert length(inside(message.blocks[0])) > 9_000
        assert message.text.endswith("word …")

    def test_one_table_a_message(self) -> None:
        table = "| a | b |\n|---|---|\n| 1 | x \\| y |\n\ntext\n\n"
        messages = compose(table * 3)
        assert [inside(message.blocks[0]).count("| a | b |") for message in messages] == [1, 1, 1]
        assert everything(messages).count("x \\| y") == 3

    def test_code_that_is_cut_keeps_its_fence_and_language(self) -> None:
        lines = [f"print('line {number} of ```the``` report')" for number in range(500)]
        messages = compose("Look:\n````python\n" + "\n".join(lines) + "\n````\nDone.")
        assert len(messages) > 1
        shown = []
        for message in messages:
            for token in SLACK.parse(inside(message.blocks[0])):
                if token.type == "fence":
                    assert (token.markup, token.info) == ("````", "python")
                    shown += token.content.splitlines()
        assert shown == lines

    def test_many_headings(self) -> None:
        messages = compose("# h\n\ntext\n\n" * 60)
        assert all(expanded(inside(message.blocks[0])) <= 50 for message in messages)
        assert len(re.findall("# h", everything(messages))) == 60


class TestMrkdwn:
    """For a server that refuses markdown blocks."""

    def test_sections_say_what_the_text_says(self) -> None:
        messages = compose("**word** " * 1_500, form="mrkdwn")
        for message in messages:
            sections = " ".join(inside(block) for block in message.blocks)
            assert sections.split() == message.text.split()
        assert len(messages[0].blocks) == 2
