"""Text in: what a Slack message says, whom it mentions, and what it asks for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from threadline_slack.words.text import (
    Command,
    File,
    command,
    files,
    is_stop,
    mentions,
    read,
    unaddressed,
)
from threadline_slack.words.tokens import clean, decode, escape

BOT = "U0AGENT001"
NAMES = {"U0HUMAN002": "Dev Two", "C0CHAN0002": "alerts", "S0GROUP001": "oncall"}


def said(text: str, **more: Any) -> str:
    return read({"text": text, **more}, names=NAMES, bot=BOT).text


class TestTokens:
    """The ``<…>`` tokens and the entities of a text."""

    @pytest.mark.parametrize(
        ("encoded", "plain"),
        [
            ("<@U0HUMAN002> said", "@Dev Two said"),
            ("<@U0HUMAN002|dev.two> said", "@Dev Two said"),
            ("<@U0STRANGER|guest> said", "@guest said"),
            ("<@U0STRANGER> said", "@U0STRANGER said"),
            ("<@W0ORG00001> said", "@W0ORG00001 said"),
            ("in <#C0CHAN0002>", "in #alerts"),
            ("in <#C0CHAN0002|>", "in #alerts"),
            ("in <#C0OTHER001|general>", "in #general"),
            ("ask <!subteam^S0GROUP001>", "ask @oncall"),
            ("ask <!subteam^S0OTHER001|@ops>", "ask @ops"),
            ("<!here> <!channel|channel> <!everyone|@everyone>", "@here @channel @everyone"),
            ("on <!date^1760000000^{date_num}|2025-10-09>", "on 2025-10-09"),
            ("on <!date^1760000000^{date_num}^https://x.test|9 October>", "on 9 October"),
            ("on <!date^1760000000^{date_num}>", "on 1760000000"),
            ("<https://x.test/?a=1&amp;b=2|the page>", "the page (https://x.test/?a=1&b=2)"),
            ("<https://x.test>", "https://x.test"),
            ("<https://x.test/|x.test>", "https://x.test/"),
            ("<mailto:a@b.test|a@b.test>", "a@b.test"),
            ("<tel:+123|call us>", "call us (tel:+123)"),
            ("<!unknown^1|a label>", "a label"),
        ],
    )
    def test_a_token_becomes_words(self, encoded: str, plain: str) -> None:
        assert said(encoded) == plain

    def test_entities_are_decoded_once_and_behind_the_tokens(self) -> None:
        text = "a &lt; b &amp;&amp; c &gt; d &amp;lt;@U0HUMAN002&amp;gt; &lt;@U0HUMAN002&gt;"
        read_text = read({"text": text}, names=NAMES)
        assert read_text.text == "a < b && c > d &lt;@U0HUMAN002&gt; <@U0HUMAN002>"
        assert read_text.users == ()

    def test_other_entities_are_text(self) -> None:
        assert said("&nbsp; &#60; &quot;") == "&nbsp; &#60; &quot;"

    def test_ids_are_kept_in_order_and_once(self) -> None:
        text = "<@U0B> <@U0A> <@U0B> <#C0B|b> <!subteam^S0A|@a> <!here> <@U0AGENT001>"
        found = read({"text": f"hi {text}"}, bot=BOT)
        assert found.users == ("U0B", "U0A")
        assert found.channels == ("C0B",)
        assert found.groups == ("S0A",)
        assert found.broadcasts == ("here",)

    @given(st.text())
    def test_what_a_person_typed_comes_back(self, typed: str) -> None:
        found = read({"text": escape(typed)})
        assert found.text == clean(typed).strip()
        assert (found.users, found.channels, found.groups, found.broadcasts) == ((), (), (), ())

    @given(st.text(alphabet="<>@#!|^&;ampltg UC1\n"))
    def test_any_encoding_is_read_without_an_error(self, text: str) -> None:
        read({"text": text})

    @given(st.text(alphabet="&;ampltg<> "))
    @example("&lt;")
    def test_decoding_undoes_escaping(self, text: str) -> None:
        assert decode(escape(text)) == text

    def test_halves_of_a_pair_are_joined_and_lone_ones_replaced(self) -> None:
        assert said("\ud83d\ude00 \ud83d x\x00\u202e") == "\U0001f600 \ufffd x"


class TestAddress:
    """The mention of the bot that a message starts with."""

    @pytest.mark.parametrize(
        "text",
        [
            f"<@{BOT}> do it",
            f"<@{BOT}|the agent> do it",
            f" <@{BOT}>: do it",
            f"<@{BOT}>, do it",
            f"<@{BOT}>\u200b do it",
            f"<@{BOT}> <@{BOT}> do it",
            f"<@{BOT}> - do it",
        ],
    )
    def test_it_is_taken_off(self, text: str) -> None:
        assert said(text) == "do it"

    @pytest.mark.parametrize(
        ("text", "rest"),
        [
            (f"<@{BOT}> .env is missing", ".env is missing"),
            (f"<@{BOT}> :tada: done", ":tada: done"),
            (f"<@{BOT}> -v is a flag", "-v is a flag"),
            (f"<@{BOT}>", ""),
        ],
    )
    def test_what_follows_is_not_touched(self, text: str, rest: str) -> None:
        assert unaddressed(text, BOT) == rest

    def test_a_mention_in_the_middle_stays(self) -> None:
        assert read({"text": f"ask <@{BOT}> this"}, names={BOT: "helper"}, bot=BOT).text == (
            "ask @helper this"
        )

    def test_it_is_taken_off_what_only_blocks_say(self) -> None:
        elements = [{"type": "user", "user_id": BOT}, {"type": "text", "text": " look"}]
        message = {
            "text": "",
            "blocks": [rich({"type": "rich_text_section", "elements": elements})],
        }
        found = read(message, names={BOT: "helper"}, bot=BOT)
        assert (found.text, found.users) == ("look", ())

    def test_mentions_looks_at_the_messages_own_text(self) -> None:
        assert mentions({"text": f"hi <@{BOT}|x>"}, BOT)
        assert not mentions({"text": f"&lt;@{BOT}&gt; <@{BOT}X>"}, BOT)
        assert not mentions({"text": "<!subteam^S0GROUP001>"}, BOT)
        assert not mentions({"text": "", "attachments": [{"text": f"<@{BOT}>"}]}, BOT)
        section = {"type": "section", "text": {"type": "mrkdwn", "text": f"<@{BOT}> look"}}
        assert mentions({"text": "fallback", "blocks": [section]}, BOT)


def rich(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "rich_text", "elements": list(elements)}


def section(*runs: dict[str, Any]) -> dict[str, Any]:
    return {"type": "rich_text_section", "elements": list(runs)}


def run(text: str, **style: bool) -> dict[str, Any]:
    return {"type": "text", "text": text, **({"style": style} if style else {})}


def blocks(*listed: dict[str, Any]) -> str:
    return read({"text": "", "blocks": list(listed)}, names=NAMES).text


class TestRichText:
    """What a person's composer writes."""

    def test_each_kind_of_run(self) -> None:
        runs = [
            run("a < b & c "),
            {"type": "user", "user_id": "U0HUMAN002"},
            run(" "),
            {"type": "usergroup", "usergroup_id": "S0GROUP001"},
            run(" "),
            {"type": "channel", "channel_id": "C0CHAN0002"},
            run(" "),
            {"type": "broadcast", "range": "here"},
            run(" "),
            {"type": "emoji", "name": "tada"},
            run(" "),
            {"type": "link", "url": "https://x.test/?a=1&b=2", "text": "page"},
            run(" "),
            {"type": "date", "timestamp": 1760000000, "format": "{date}", "fallback": "9 Oct"},
            run(" "),
            {"type": "color", "value": "#F405B3"},
        ]
        assert blocks(rich(section(*runs))) == (
            "a < b & c @Dev Two @oncall #alerts @here :tada: "
            "page (https://x.test/?a=1&b=2) 9 Oct #F405B3"
        )

    def test_styles_are_marked(self) -> None:
        runs = [run("bold", bold=True), run(" and "), run("both ", italic=True, strike=True)]
        runs.append(run("x*y", code=True))
        assert blocks(rich(section(*runs))) == "*bold* and _~both~_ `x*y`"

    def test_quotes_and_code(self) -> None:
        quote = {"type": "rich_text_quote", "elements": [run("one\ntwo")]}
        code = {"type": "rich_text_preformatted", "elements": [run("if a:\n    b", bold=True)]}
        assert blocks(rich(section(run("see\n")), quote, code)) == (
            "see\n> one\n> two\n```\nif a:\n    b\n```"
        )

    def test_lists_nest_and_count_on(self) -> None:
        def listed(style: str, indent: int, *items: str, **more: Any) -> dict[str, Any]:
            return {
                "type": "rich_text_list",
                "style": style,
                "indent": indent,
                "elements": [section(run(item)) for item in items],
                **more,
            }

        shown = blocks(
            rich(
                listed("ordered", 0, "one"),
                listed("bullet", 1, "sub"),
                listed("ordered", 0, "two"),
                section(run("between")),
                listed("ordered", 0, "five", offset=4),
            )
        )
        assert shown == "1. one\n  - sub\n2. two\nbetween\n5. five"

    def test_encoded_text_is_decoded_and_plain_text_is_not(self) -> None:
        assert blocks(rich(section(run("Q&amp;A")))) == "Q&A"
        assert blocks(rich(section(run("a < b &amp; c")))) == "a < b &amp; c"


class TestBlocks:
    """What apps post."""

    def test_header_section_fields_context_and_image(self) -> None:
        shown = blocks(
            {"type": "header", "text": {"type": "plain_text", "text": "Alert"}},
            {
                "type": "section",
                "text": {"type": "mrkdwn", "text": "*5xx* &gt; 1% <https://x.test|graph>"},
                "fields": [
                    {"type": "mrkdwn", "text": "*Severity*\ncritical"},
                    {"type": "plain_text", "text": "eu-1"},
                ],
                "accessory": {
                    "type": "button",
                    "text": {"type": "plain_text", "text": "Runbook"},
                    "url": "https://run.test",
                },
            },
            {"type": "divider"},
            {"type": "image", "alt_text": "a graph", "image_url": "https://x.test/i.png"},
            {
                "type": "context",
                "elements": [
                    {"type": "image", "alt_text": "logo", "image_url": "https://x.test/l.png"},
                    {"type": "mrkdwn", "text": "by <@U0HUMAN002>"},
                ],
            },
            {
                "type": "actions",
                "elements": [
                    {"type": "button", "text": {"type": "plain_text", "text": "Ack"}},
                    {
                        "type": "button",
                        "text": {"type": "plain_text", "text": "Silence"},
                        "url": "https://s.test",
                    },
                ],
            },
        )
        assert shown.split("\n") == [
            "Alert",
            "*5xx* > 1% graph (https://x.test)",
            "*Severity*",
            "critical",
            "eu-1",
            "Runbook (https://run.test)",
            "[image: a graph]",
            "[image: logo] by @Dev Two",
            "Silence (https://s.test)",
        ]

    def test_a_table(self) -> None:
        cell = rich(section(run("two", bold=True)))
        rows = [[{"type": "raw_text", "text": "a"}, {"type": "raw_number", "value": 1}], [cell]]
        assert blocks({"type": "table", "rows": rows}) == "a | 1\n*two*"

    def test_a_markdown_block(self) -> None:
        assert blocks({"type": "markdown", "text": "**a** &lt; b"}) == "**a** < b"

    def test_an_unknown_block_shows_its_texts(self) -> None:
        block = {
            "type": "card",
            "block_id": "not shown",
            "title": {"type": "plain_text", "text": "Title"},
            "slots": [{"body": {"type": "mrkdwn", "text": "for <@U0HUMAN002>"}}],
            "subtitle": "Sub",
        }
        assert blocks(block) == "Title\nfor @Dev Two\nSub"

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["type", "text", "elements", "fields", "rows", "style", "indent", "offset"]
                    ),
                    inner
                    | st.sampled_from(
                        ["rich_text", "section", "table", "rich_text_list", "text", "image"]
                    ),
                    max_size=4,
                )
            ),
            max_leaves=20,
        )
    )
    def test_no_shape_of_blocks_or_attachments_is_an_error(self, anything: Any) -> None:
        message = {"text": None, "blocks": anything, "attachments": anything, "files": anything}
        read(message, bot=BOT)
        mentions(message, BOT)


class TestAttachments:
    """Alert posts, shared messages and previews."""

    def test_an_alert_is_read_whole(self) -> None:
        attachment = {
            "pretext": "Alertmanager",
            "author_name": "prometheus",
            "title": "[FIRING:1] HighErrorRate",
            "title_link": "http://alertmanager.test:9093/#/alerts",
            "text": "5xx &gt; 12% on <https://x.test|checkout>",
            "fields": [{"title": "severity", "value": "critical"}, {"value": "eu"}],
            "footer": "rule 7",
            "fallback": "not needed",
            "actions": [{"type": "button", "text": "Silence", "url": "https://s.test"}],
        }
        assert read({"text": "", "bot_id": "B1", "attachments": [attachment]}).text.split("\n") == [
            "Alertmanager",
            "prometheus",
            "[FIRING:1] HighErrorRate (http://alertmanager.test:9093/#/alerts)",
            "5xx > 12% on checkout (https://x.test)",
            "severity: critical",
            "eu",
            "Silence (https://s.test)",
            "rule 7",
        ]

    def test_the_fallback_only_when_there_is_nothing_else(self) -> None:
        assert said("", attachments=[{"fallback": "all we have"}]) == "all we have"
        assert said("", attachments=[{"fallback": "[no preview available]"}]) == ""

    def test_nested_blocks_and_shared_messages(self) -> None:
        header = {"type": "header", "text": {"type": "plain_text", "text": "Nested"}}
        shared = {"message": {"blocks": [rich(section(run("the shared post")))]}}
        assert said("", attachments=[{"color": "a00", "blocks": [header]}]) == "Nested"
        assert said("see", attachments=[{"message_blocks": [shared]}]) == "see\nthe shared post"

    def test_several_are_kept_apart(self) -> None:
        assert said("", attachments=[{"text": "one"}, {"text": "two"}]) == "one\n\ntwo"


class TestMerging:
    """Text, blocks and attachments often say the same."""

    def test_a_typed_messages_blocks_add_nothing(self) -> None:
        assert said("• a", blocks=[rich(section(run("something else")))]) == "• a"

    def test_a_fallback_is_dropped_for_the_whole(self) -> None:
        block = {"type": "section", "text": {"type": "mrkdwn", "text": "CPU is high on web-1"}}
        assert said("CPU is high", bot_id="B1", blocks=[block]) == "CPU is high on web-1"
        assert said("CPU is high on web-1!", bot_id="B1", blocks=[block]) == "CPU is high on web-1!"

    def test_different_texts_are_both_kept(self) -> None:
        block = {"type": "section", "text": {"type": "mrkdwn", "text": "tokens"}}
        assert said("ok", bot_id="B1", blocks=[block]) == "ok\ntokens"

    def test_slacks_placeholder_is_not_text(self) -> None:
        block = {"type": "header", "text": {"type": "plain_text", "text": "Real"}}
        assert said("This content can't be displayed.", bot_id="B1", blocks=[block]) == "Real"


class TestFiles:
    """What came with a message."""

    def test_a_record_a_file(self) -> None:
        listed = [
            {
                "id": "F1",
                "name": "trace.pdf",
                "mimetype": "application/pdf",
                "size": 48211,
                "url_private": "https://files.test/1",
                "url_private_download": "https://files.test/1/download",
                "file_access": "visible",
            },
            {"id": "F2", "mode": "tombstone"},
            {"id": "F3", "file_access": "check_file_info"},
            "nonsense",
        ]
        assert files({"files": listed}) == (
            File("F1", "trace.pdf", "application/pdf", 48211, "https://files.test/1/download"),
            File("F3", "F3", "application/octet-stream", 0, None, "check_file_info"),
        )
        assert read({"text": f"<@{BOT}>", "files": listed}, bot=BOT).files[0].id == "F1"


class TestStop:
    """Whole-message stop."""

    @pytest.mark.parametrize(
        "text",
        [
            *["stop", "Stop", " STOP. ", "stop!", f"<@{BOT}> stop", f"<@{BOT}>\u200b stop"],
            *[f"stop <@{BOT}>", f"<@{BOT}|the agent>: Stop!", "@agent stop", "Agent, stop."],
            *["/stop", "!stop", "*stop*", "`stop`", "stop :octagonal_sign:", "\U0001f6d1"],
            *["cancel", "ABORT!!", "halt", "please stop", "Stop, please.", "stop it now"],
            *["STOP STOP STOP", "\uff53\uff54\uff4f\uff50\uff01", "stop everything", "stop\n"],
        ],
    )
    def test_usual_spellings(self, text: str) -> None:
        assert is_stop(text, bot=BOT, bot_names=["agent"])

    @pytest.mark.parametrize(
        "text",
        [
            *["if that fails, stop.", "stop using the staging database", "please don't stop"],
            *["stop?", "nonstop", "stop the deploy", "Stop?!", "unstoppable", "", "!", "why stop"],
            *["<@U0HUMAN002> stop", "@bob stop", "stop & start", "cancel my 3pm", "stop\nthe job"],
            *["don't stop", "agent stopped", "full stop", "&lt;stop the&gt;", "stop-loss order"],
        ],
    )
    def test_sentences_that_only_hold_the_word(self, text: str) -> None:
        assert not is_stop(text, bot=BOT, bot_names=["agent"])


class TestCommand:
    """``!name args``."""

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("!model fast &amp; cheap", Command("model", "fast & cheap")),
            (f"<@{BOT}> !New", Command("new", "")),
            ("  !resume  2 ", Command("resume", "2")),
            ("!note one\ntwo", Command("note", "one\ntwo")),
            ("!!!", None),
            ("! model", None),
            ("say !model", None),
            ("!model: fast", None),
            ("", None),
        ],
    )
    def test_commands(self, text: str, found: Command | None) -> None:
        assert command(text, bot=BOT) == found
