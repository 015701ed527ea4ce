"""Text out, as it is written: Markdown for a stream."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.channels.slack.hostile import MARKDOWN, live_tokens

from threadline_slack.words.defuse import defuse

ZWSP = "\u200b"


class TestWhole:
    """A text that is complete."""

    @pytest.mark.parametrize(
        ("source", "expected"),
        [
            ("<!channel> <!here|here>", "@·channel @·here"),
            ("<!subteam^S1|@ops> <@U3|Dev> <#C1|general>", "@·ops @·Dev #·general"),
            ("<@U1|Dev Two> and <@U2>", "<@U1> and @·Grace"),
            (
                "@here @Everyone me@here.test @hereafter",
                "@·here @·Everyone me@·here.test @hereafter",
            ),
            ("`@here <!here>` ``<@U2>``", "`@here <·!here>` ``<·@U2>``"),
            ("[x](javascript:y) [x](https://y)", "[x]·(javascript:y) [x](https://y)"),
            ("![x]( <data:text/html,y>)", "![x]·( <data:text/html,y>)"),
            ("[x]: vbscript:y", "[x]·: vbscript:y"),
            ("<javascript:y> <https://y> <a@b.test>", "<·javascript:y> <https://y> <a@b.test>"),
            ("**b** a < b <div> <!-- c -->", "**b** a < b <div> <!-- c -->"),
            ("```py\n@here <!here> <T>\n```\n@here", "```py\n@here <·!here> <T>\n```\n@·here"),
            ("> ```\n> @here\nout @here", "> ```\n> @here\nout @·here"),
            ("````\n```\n@here\n````\n@here", "````\n```\n@here\n````\n@·here"),
            ("&lt;!here&gt;", "&lt;!here&gt;"),
            ("<@U3|<@U4>> <!here", "<·@U3|@·U4> <·!here"),
            ("`<@U3|<@U4>>`", "`<·@U3|<·@U4>>`"),
        ],
    )
    def test_what_must_not_be_live_is_not(self, source: str, expected: str) -> None:
        out = defuse(source, mentions={"U1"}, names={"U2": "Grace"})
        assert out.replace(ZWSP, "·") == expected

    @given(MARKDOWN)
    def test_any_text_is_inert(self, text: str) -> None:
        assert live_tokens(defuse(text)) == []

    @given(st.text(alphabet=" abc*_`#->\n1.|~[]()", max_size=80))
    def test_what_is_harmless_is_not_changed(self, text: str) -> None:
        assert defuse(text) == text


class TestBeginnings:
    """A text that is still being written."""

    @pytest.mark.parametrize(
        ("source", "expected"),
        [
            ("hello <@U", "hello "),
            ("hello <", "hello "),
            ("hello [x](java", "hello [x"),
            ("hello @he", "hello "),
            ("say `co", "say "),
            ("``", ""),
            ("```py", ""),
            ("- ~~", "- "),
            ("```py\ncode <!he", "```py\ncode "),
            ("a < b and", "a < b and"),
            ("done `x` and [l](https://x", "done `x` and [l](https://x"),
        ],
    )
    def test_an_undecided_end_is_held_back(self, source: str, expected: str) -> None:
        assert defuse(source, final=False) == expected

    @given(MARKDOWN, st.data())
    @example("`<!channel><!channel>` ``a`<@U1>``", None)
    @example("- ```\n> ~~~ <!here>\n[x](data:y) <javascript:z> <@U2|<@U3>>", None)
    @example("\U0001f600<@U1> `@here` ](javascript:x)\n```\n<!here>\n```\n", None)
    def test_what_was_said_is_never_taken_back(self, text: str, data: st.DataObject | None) -> None:
        places = range(len(text) + 1)
        if data is not None:
            places = data.draw(st.sampled_from([[at] for at in places]))
        whole = defuse(text, mentions={"U1"})
        for at in places:
            beginning = defuse(text[:at], mentions={"U1"}, final=False)
            assert whole.startswith(beginning)
            assert live_tokens(beginning) in ([], ["<@U1>"] * beginning.count("<@U1>"))

    def test_little_is_held_back(self) -> None:
        text = "Some **bold** text, a [link](https://x.test), `code` and 3 < 4.\n" * 5
        held = [at - len(defuse(text[:at], final=False)) for at in range(len(text))]
        assert max(held) < 10
