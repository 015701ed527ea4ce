"""Text out: Markdown to mrkdwn."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.channels.slack.hostile import MARKDOWN, live_in_mrkdwn
from wcwidth import width

from threadline_slack.words.parse import safe_url
from threadline_slack.words.render import mrkdwn
from threadline_slack.words.tables import layout
from threadline_slack.words.tokens import ENTITY

ZWSP = "\u200b"


def shown(markdown: str) -> str:
    """Return the mrkdwn with zero-width spaces made visible."""
    return mrkdwn(markdown).replace(ZWSP, "·")


class TestInline:
    """Emphasis, code, links, images, HTML."""

    @pytest.mark.parametrize(
        ("markdown", "expected"),
        [
            ("**bold** __bold__", "*bold* *bold*"),
            ("*it* _it_", "_it_ _it_"),
            ("~~gone~~ for ~5 to ~10", "~gone~ for ~5 to ~10"),
            ("~/a to ~/b", "~/a to ~/b"),
            ("***both***", "_*both*_"),
            ("**bold _it_**", "*bold _it_*"),
            ("**a **b** c**", "*a b c*"),
            ("`a < b`", "`a &lt; b`"),
            ("``a ` b``", "`a ˋ b`"),
            ("**`x`**", "*`x`*"),
            ("a\nb  \nc\\\nd", "a\nb\nc\nd"),
            ("**a\nb**", "*a*\n*b*"),
            ("a<br>b<br/>c", "a\nb\nc"),
            ("a <b>b</b> <!-- no --> c", "a b  c"),
            ("Vec<String> and <your-token>", "Vec&lt;String&gt; and &lt;your-token&gt;"),
            ("<details>\n<summary>Logs</summary>\n\n**x**\n</details>", "Logs\n\n*x*"),
            ("&copy; &amp; &lt;", "© &amp; &lt;"),
        ],
    )
    def test_formatting(self, markdown: str, expected: str) -> None:
        assert shown(markdown) == expected

    @pytest.mark.parametrize(
        ("markdown", "expected"),
        [
            ("[ok](https://x.test/?a=1&b=2)", "<https://x.test/?a=1&amp;b=2|ok>"),
            ('[ok](https://x.test "title")', "<https://x.test|ok>"),
            ("[**bold**](https://x.test)", "*<https://x.test|bold>*"),
            ("**[b](https://x.test)**", "*<https://x.test|b>*"),
            ("[a `c` *i*](https://x.test)", "<https://x.test|a c i>"),
            ("[a < b | c](https://x.test)", "<https://x.test|a &lt; b | c>"),
            ("[](https://x.test)", "<https://x.test>"),
            ("[r][1]\n\n[1]: https://x.test", "<https://x.test|r>"),
            ("<https://x.test>", "<https://x.test>"),
            ("<a@b.test>", "<mailto:a@b.test|a@b.test>"),
            ("<https://x.test|label>", "<https://x.test|label>"),
            ("see https://x.test/a_b_c/_d_/e.", "see <https://x.test/a_b_c/_d_/e>."),
            ("(https://x.test/a_(b))", "(<https://x.test/a_(b)>)"),
            ("**https://x.test**", "*<https://x.test>*"),
            ("見て https://x.test/人。次", "見て <https://x.test/人>。次"),
            ("![graph](https://x.test/i.png)", "<https://x.test/i.png|graph>"),
            ("![](https://x.test/i.png)", "<https://x.test/i.png|image>"),
            ("[![badge](https://b.test)](https://x.test)", "<https://x.test|badge>"),
            ("[click](javascript:alert(1))", "click (javascript:alert(1))"),
            ("[x](JaVaScRiPt:y)", "x (JaVaScRiPt:y)"),
            ("[doc](docs/README.md)", "doc (docs/README.md)"),
            ("[f](file:///etc/passwd)", "f (file:///etc/passwd)"),
            ("![x](data:image/png;base64,AAAA)", "x"),
            ("[x](https://a.test/<!here>)", "<https://a.test/%3C!here%3E|x>"),
        ],
    )
    def test_links(self, markdown: str, expected: str) -> None:
        assert shown(markdown) == expected

    def test_control_characters_and_overrides_make_no_link(self) -> None:
        assert safe_url("https://x.test/\x07") is None
        assert safe_url("https://x.test/\u202egpj.exe") is None
        assert safe_url("https://") is None
        assert safe_url("ftp://x.test") is None
        assert safe_url("https://x.test/a b") is None
        assert safe_url(' https://x.test/a|c<d>`" ') == "https://x.test/a%7Cc%3Cd%3E%60%22"


class TestMarks:
    """mrkdwn marks count only at a boundary, and have no escape."""

    @pytest.mark.parametrize(
        ("markdown", "expected"),
        [
            ("这是**重点**内容", "这是·*重点*·内容"),
            ("**重点：**内容", "*重点：*·内容"),
            ("これは`コード`です", "これは·`コード`·です"),
            ("a**b**c", "a·*b*·c"),
            ("(**b**), **c**: **d**!", "(*b*), *c*: *d*!"),
            ("~~한글~~은", "~한글~·은"),
            ("**a***b*", "*a*·_b_"),
        ],
    )
    def test_beside_letters(self, markdown: str, expected: str) -> None:
        assert shown(markdown) == expected

    @given(
        st.sampled_from(["", " ", "\u6f22", "a", "\uff08", ".", "(", "\u0e01", "7"]),
        st.sampled_from(["**", "*", "~~", "`"]),
        st.sampled_from(["\u91cd\u70b9", "x", "\u91cd\u70b9\uff1a", "a b", "x!"]),
        st.sampled_from(["", " ", "\u6f22", "a", "\u3002", ".", ")", "7"]),
    )
    def test_a_mark_that_markdown_sees_slack_sees(
        self, before: str, mark: str, word: str, after: str
    ) -> None:
        out = mrkdwn(f"{before}{mark}{word}{mark}{after}")
        slack = {"**": "*", "*": "_", "~~": "~", "`": "`"}[mark]
        bounded = rf"(?<![^\W_]){re.escape(slack + word + slack)}(?![^\W_])"
        latin = "a7".find(before or "-") >= 0 or "a7".find(after or "-") >= 0
        if re.search(bounded, out) is None:
            assert latin, out
            assert slack + word + slack not in out

    @pytest.mark.parametrize(
        ("markdown", "expected"),
        [
            ("snake_case_name 2 * 3 * 4 ~5 to ~10", "snake_case_name 2 * 3 * 4 ~5 to ~10"),
            ("use *args and **kwargs", "use *args and **kwargs"),
            ("\\*not bold\\*", "∗not bold∗"),
            ("\\_x\\_ and \\~y\\~ and \\`z\\`", "ˍxˍ and ∼y∼ and ˋzˋ"),
            ("\\*x **bold**", "∗x *bold*"),
            ("\\*x `y*`", "*x `y*`"),
            ("\\> not a quote", "·&gt; not a quote"),
        ],
    )
    def test_literal_marks(self, markdown: str, expected: str) -> None:
        assert shown(markdown) == expected


class TestBlocks:
    """Headings, lists, quotes, code, tables, rules."""

    @pytest.mark.parametrize(
        ("markdown", "expected"),
        [
            ("# Title **b**\ntext", "*Title b*\ntext"),
            ("a\n\n---\n\nb", "a\n\n────────────\n\nb"),
            ("- a\n- b", "• a\n• b"),
            ("- a\n\n- b", "• a\n• b"),
            ("- a\n  - b\n    - c\n      - d", "• a\n    ◦ b\n        ▪ c\n            • d"),
            ("3. a\n4. b", "3. a\n4. b"),
            ("1. a\n   - b\n2. c", "1. a\n    ◦ b\n2. c"),
            (
                "- [ ] a\n- [x] **b**\n- [link](https://x.test)",
                "☐ a\n☑ *b*\n• <https://x.test|link>",
            ),
            ("- a\n  more\n\n  para", "• a\n    more\n\n    para"),
            ("> a\n> b", "> a\n> b"),
            ("> a\n>\n> b", "> a\n>\n> b"),
            ("> a\n> > b", "> a\n>\n> &gt; b"),
            ("> - a", "> • a"),
            ("```py\nif a < b:\n    x & y\n```", "```\nif a &lt; b:\n    x &amp; y\n```"),
            ("````\n```\n````", "```\n`·`·`\n```"),
            ("- a\n  ```\n  x\n    y\n  ```", "• a\n```\nx\n  y\n```"),
            ("> a\n> ```\n> x\n> ```", "> a\n>\n```\nx\n```"),
            ("    indented", "```\nindented\n```"),
            ("", ""),
            ("-", "•"),
        ],
    )
    def test_blocks(self, markdown: str, expected: str) -> None:
        assert shown(markdown) == expected

    def test_a_table_is_aligned_by_width(self) -> None:
        markdown = (
            "| name | 個数 | note |\n|:--|--:|:-:|\n| りんご | 12 | **good** |\n"
            "| a \\| b | 3 | [l](https://x.test) `<c>` |"
        )
        assert mrkdwn(markdown).split("\n") == [
            "```",
            "name   | 個数 |          note",
            "-------+------+-----------------------",
            "りんご |   12 |          good",
            "a | b  |    3 | l (https://x.test) &lt;c&gt;",
            "```",
        ]

    @given(
        st.integers(1, 5).flatmap(
            lambda columns: st.lists(
                st.lists(
                    st.text(alphabet="ab \u6f22\u0301\uff21\U0001f600", max_size=70),
                    min_size=columns,
                    max_size=columns,
                ),
                min_size=1,
                max_size=5,
            )
        )
    )
    def test_columns_stand_under_each_other(self, rows: list[list[str]]) -> None:
        lines = layout([[*row, "|"] for row in rows], ["left"] * len(rows[0]) + ["left"])
        ends = [width(line) for line in lines if not line.startswith("-")]
        fitting = all(width(cell) <= 60 for row in rows for cell in row)
        assert not fitting or len(set(ends)) == 1


class TestInjection:
    """Nothing from outside is live."""

    def test_broadcasts_groups_and_mentions_are_words(self) -> None:
        out = mrkdwn(
            "<!channel> <!here|x> <!subteam^S0GROUP001> <!subteam^S1|@ops> <@U0HUMAN002>"
            " <@U0HUMAN003|Dev> <#C0CHAN0002|alerts> @everyone @Here",
            names={"U0HUMAN002": "Dev Two"},
        )
        assert out == (
            f"@{ZWSP}channel @{ZWSP}here @{ZWSP}S0GROUP001 @{ZWSP}ops @{ZWSP}Dev Two"
            f" @{ZWSP}Dev #{ZWSP}alerts @{ZWSP}everyone @{ZWSP}Here"
        )

    def test_only_what_is_allowed_is_live_and_in_the_bare_form(self) -> None:
        out = mrkdwn(
            "<@U1|Dev Two> <@U2> <!subteam^S1|@ops> <#C1|x> <!here> `<@U1>`",
            mentions={"U1", "S1", "C1", "here"},
        )
        assert out == (f"<@U1> @{ZWSP}U2 <!subteam^S1> <#C1> @{ZWSP}here `&lt;@U1&gt;`")

    def test_tokens_in_headings_cells_labels_and_code(self) -> None:
        out = mrkdwn(
            "# <!here>\n\n| <!here> |\n|-|\n| <@U1> |\n\n[<@U1>](https://x.test)\n\n```\n<!here>\n```"
        )
        assert live_in_mrkdwn(out) == []
        assert "&lt;!here&gt;" in out

    def test_mail_addresses_and_decorators_in_code_are_untouched(self) -> None:
        assert mrkdwn("`@here` me@here.test") == "`@here` me@" + ZWSP + "here.test"

    @given(MARKDOWN)
    def test_any_text_is_inert(self, text: str) -> None:
        assert live_in_mrkdwn(mrkdwn(text)) == []

    @given(MARKDOWN)
    def test_with_one_allowed_only_that_one_is_live(self, text: str) -> None:
        out = mrkdwn(text + " <@U0ALLOWED1>", mentions={"U0ALLOWED1"})
        assert live_in_mrkdwn(out, "U0ALLOWED1") == []

    @given(MARKDOWN)
    def test_every_ampersand_starts_an_entity(self, text: str) -> None:
        out = mrkdwn(text)
        assert ENTITY.sub("", out).count("&") == 0
        assert not re.search("[\ufdd0-\ufdef\x00]", out)
        out.encode()

    @given(st.text(alphabet="ab<>& ;\n", max_size=60))
    def test_code_comes_out_as_it_went_in(self, code: str) -> None:
        out = mrkdwn(f"```\n{code}\n```").replace("&lt;", "<").replace("&gt;", ">")
        assert out.replace("&amp;", "&") == f"```\n{code}\n```"

    @pytest.mark.parametrize(
        "text",
        [
            "*" * 20_000,
            "`" * 20_000,
            "[" * 5_000,
            "<" * 20_000,
            "> " * 2_000,
            "https://x" + "!" * 20_000,
            *["*a " * 10_000, "\\*a\\* " * 5_000, "- " * 300, "_a" * 10_000, "![](" * 3_000],
        ],
    )
    def test_hostile_lengths_are_read_in_time(self, text: str) -> None:
        assert live_in_mrkdwn(mrkdwn(text)) == []
