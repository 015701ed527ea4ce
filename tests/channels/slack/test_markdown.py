"""Text out: Markdown to Markdown that Slack reads as it was meant."""

from __future__ import annotations

import re
from collections import Counter
from urllib.parse import unquote

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from tests.channels.slack.hostile import MARKDOWN, live_tokens

from threadline_slack.words.markdown import markdown
from threadline_slack.words.parse import parse, safe_url
from threadline_slack.words.render import Words

ZWSP = "\u200b"
WORDS = Words((), {})
SLACK = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def shown(source: str) -> str:
    return markdown(source).replace(ZWSP, "·")


def words(source: str) -> str:
    """Return the text of Markdown alone, without what is invisible or spaces."""
    everything = WORDS.plain(parse(source).children)
    return re.sub(rf"[\s{ZWSP}]+", "", unquote(everything))


def content(node: SyntaxTreeNode) -> str:
    """Return what a node shows, a letter for a token or an image."""
    return "".join(
        WORDS.html(leaf.content)
        if leaf.type == "html_inline"
        else "x"
        if leaf.type in ("slack", "image")
        else leaf.content
        for leaf in node.walk()
        if not leaf.children
    ).strip(f"{ZWSP} \n")


def is_filled(node: SyntaxTreeNode) -> bool:
    return node.type not in ("list_item", "blockquote") or content(node) != ""


def parts(tree: SyntaxTreeNode) -> Counter[str]:
    """Count what Markdown is made of, but for what shows nothing and what may not be linked."""
    return Counter(part for node in tree.walk() if (part := part_of(node)))


def part_of(node: SyntaxTreeNode) -> str | None:
    if node.type in ("code_block", "fence"):
        return "fence"
    if node.type in ("link", "image"):
        target = str(node.attrs.get("href", node.attrs.get("src")))
        return "link" if safe_url(target) else None
    if node.type in ("strong", "em", "s", "heading"):
        above = node
        while above.parent is not None:
            above = above.parent
            if above.type == node.type:
                return None
        return node.type if content(node) else None
    kept = ("code_inline", "list_item", "blockquote", "table", "hr")
    return node.type if node.type in kept else None


class TestForm:
    """What comes out is Markdown again."""

    @pytest.mark.parametrize(
        "source",
        [
            "# Title **b**\n\ntext",
            "**bold** *it* ~~gone~~ `code`",
            "***both*** **a *b***",
            "- a\n- b\n  - c\n    - d",
            "1. a\n   - b\n2. c",
            "3. a\n4. b",
            "- [ ] a\n- [x] b",
            "- a\n\n  para",
            "- a\n  ```py\n  x\n    y\n  ```",
            "> a\n> b\n>\n> > c",
            "> ```\n> x\n> ```",
            "```py\nif a < b:\n    x & y\n```",
            "````\n```\n````",
            "| a | b |\n| --- | --: |\n| 1 \\| 2 | `x` |",
            "a\n\n---\n\nb",
            "[l](https://x.test/?a=1&b=2) <https://x.test>",
            "| a |\n| --- |\n| `x\\|y` b\\|c |",
            "snake_case 2 * 3",
            "``a`b`` `` `a ``",
            "a\nb",
        ],
    )
    def test_what_is_already_right_is_unchanged(self, source: str) -> None:
        assert markdown(source) == source

    @pytest.mark.parametrize(
        ("source", "expected"),
        [
            ("Title\n=====", "# Title"),
            ("__b__ _i_", "**b** *i*"),
            ("* a\n* b", "- a\n- b"),
            ("~~~sql title\nx\n~~~", "```sql\nx\n```"),
            ("    indented", "```\nindented\n```"),
            ("https://x.test/a_b_c.", "<https://x.test/a_b_c>."),
            ("![g](https://x.test/i.png)", "[g](https://x.test/i.png)"),
            ("[a](https://x.test/a_(b))", "[a](https://x.test/a_%28b%29)"),
            ("[click](javascript:alert(1))", "click (javascript:alert(1))"),
            ("a < b && c", "a &lt; b &amp;&amp; c"),
            ("a<br>b", "a\nb"),
            ("x <T> y", "x &lt;T&gt; y"),
            ("\\# no", "\\# no"),
            ("1\\. no", "1\\. no"),
            ("\\- no", "\\- no"),
            ("\\*no\\* \\_no\\_ \\[no](x)", "\\*no\\* \\_no\\_ \\[no](x)"),
            ("wow\\![l](https://x.test)", "wow\\![l](https://x.test)"),
            ("# a \\#", "# a \\#"),
            ("> a\n\nb", "> a\n\nb"),
        ],
    )
    def test_what_is_not_is_put_right(self, source: str, expected: str) -> None:
        assert shown(source) == expected

    @pytest.mark.parametrize(
        ("source", "expected"),
        [
            ("这是**重点：**内容", "这是·**重点：·**·内容"),
            ("a**b**c", "a·**b**·c"),
            ("**注意:** x", "**注意:** x"),
            ("これは`コード`です", "これは·`コード`·です"),
            ("~~删除。~~后", "~~删除。·~~·后"),
        ],
    )
    def test_emphasis_beside_letters_and_cjk(self, source: str, expected: str) -> None:
        assert shown(source) == expected

    @given(
        st.sampled_from(["", "\u6f22", "a ", "\uff08", "\u3002", "7"]),
        st.sampled_from(["strong", "em", "s"]),
        st.sampled_from(["\u91cd\u70b9\uff1a", "(x)", "\u300c\u5f15\u300d", "70%"]),
        st.sampled_from(["", "\u6f22", " a", "\u3001", "\uff09", "7"]),
    )
    def test_slacks_parser_sees_emphasis_where_ours_does(
        self, before: str, kind: str, inside: str, after: str
    ) -> None:
        mark = {"strong": "**", "em": "*", "s": "~~"}[kind]
        source = f"{before}{mark}{inside}{mark}{after}"
        ours = [node.type for node in parse(source).walk() if node.type == kind]
        theirs = SLACK.parseInline(markdown(source))[0].children or []
        assert len(ours) == len([token for token in theirs if token.type == f"{kind}_open"])

    def test_a_table_over_the_limits_is_code(self) -> None:
        wide = "|" + "a|" * 21 + "\n|" + "-|" * 21
        long = "| a |\n|-|\n" + "| 1 |\n" * 100
        large = "| a |\n|-|\n| " + "x" * 200 + " |"
        for source in (wide, long):
            assert markdown(source).startswith("```\n")
        assert markdown("| a |\n|-|\n" + "| 1 |\n" * 99).startswith("| a |")
        assert markdown(large).startswith("| a |")
        assert markdown(large, table_characters=100).startswith("```\n")


class TestInjection:
    """Nothing from outside is live."""

    def test_tokens_become_words(self) -> None:
        out = markdown(
            "<!channel> <!subteam^S1|@ops> <@U1|Dev Two> <@U2> @everyone `<@U1>`\n"
            "```\n<!here> <!doctype>\n```",
            mentions={"U1"},
            names={"U2": "Dev *Three*"},
        )
        assert out == (
            f"@{ZWSP}channel @{ZWSP}ops <@U1> @{ZWSP}Dev \\*Three\\* @{ZWSP}everyone"
            f" `<{ZWSP}@U1>`\n\n```\n<{ZWSP}!here> <!doctype>\n```"
        )

    @given(MARKDOWN)
    def test_any_text_is_inert(self, text: str) -> None:
        assert live_tokens(markdown(text)) == []

    @given(MARKDOWN)
    def test_every_link_is_safe(self, text: str) -> None:
        for token in SLACK.parse(markdown(text)):
            for child in token.children or []:
                if child.type == "link_open":
                    assert re.match(r"https?://|mailto:", str(child.attrs["href"]), re.IGNORECASE)
                assert child.type not in ("html_inline", "image")

    @given(MARKDOWN)
    @example("HTTP://<!date^0^x|<!here>>")
    def test_no_word_is_lost(self, text: str) -> None:
        assume(not re.search(r"\\http", text))  # an escape that is none hides the URL's start
        assert words(markdown(text)) == words(text)

    @given(MARKDOWN)
    def test_slacks_parser_sees_the_same_parts(self, text: str) -> None:
        tree = parse(text)
        assume(all(is_filled(node) for node in tree.walk()))
        assert parts(SyntaxTreeNode(SLACK.parse(markdown(text)))) == parts(tree)
