"""Cutting rendered text: nothing lost, nothing broken, within the limit."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from wcwidth import iter_graphemes

from threadline_slack.words.chunks import Chunk, length, split, truncate

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
PIECES = st.sampled_from(
    [
        "word ",
        "A sentence. ",
        "\u6f22\u5b57\u3002",
        FAMILY,
        "\U0001f1e9\U0001f1ea",
        "e\u0301\u0302",
        "\U0001f600",
        "&amp;",
        "&lt;b&gt;",
        "<https://x.test/a?b=1&amp;c=2|a label>",
        "<@U0HUMAN002>",
        "[label](https://x.test)",
        "`some code` ",
        "**bold words** ",
        "\\*",
        "\n",
        "\n\n",
        "- item ",
        "\n1. one ",
        "\n> quoted ",
        "\n# Heading\n",
        "\n| a | b |\n| - | - |\n",
        "\n```python\nx = 1\n",
        "\n```\n",
        "\n~~~~\n",
        "  ",
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=30), max_size=60).map("".join)
LIMITS = st.integers(80, 400)


def joined(chunks: list[Chunk]) -> str:
    return "".join(chunk.body for chunk in chunks)


def cuts(chunks: list[Chunk]) -> list[int]:
    places, at = [], 0
    for chunk in chunks[:-1]:
        at += len(chunk.body)
        places.append(at)
    return places


def words(count: int, word: str = "word") -> str:
    return " ".join([word] * count)


class TestProperties:
    """What holds for any text and any limit."""

    @given(TEXTS, LIMITS)
    @example("x" * 1000, 80)
    @example("```\n" + "x" * 500, 80)
    @example("\U0001f600" * 100, 81)
    @example("e" + "\u0301" * 500, 80)
    @example("> " * 60 + "```\n" + "x\n" * 200, 80)
    @example("`" * 700 + "\n" + "x\n" * 200, 80)
    @example("\ud83d\ude00" * 200, 81)
    def test_every_character_is_there_once_and_every_piece_fits(
        self, text: str, limit: int
    ) -> None:
        chunks = split(text, limit)
        assert joined(chunks) == text
        assert all(length(chunk.text) <= limit for chunk in chunks)
        assert all(chunk.body for chunk in chunks)

    @given(TEXTS, LIMITS)
    def test_no_cut_through_a_grapheme(self, text: str, limit: int) -> None:
        ends, at = {0}, 0
        for cluster in iter_graphemes(text):
            at += len(cluster)
            ends.add(at)
        assert set(cuts(split(text, limit))) <= ends

    @given(
        st.lists(
            st.sampled_from(
                [FAMILY, "\U0001f1e9\U0001f1ea", "e\u0301\u0302", "\u6f22", "&amp;", "x"]
            ),
            min_size=30,
            max_size=200,
        ).map("".join),
        LIMITS,
    )
    def test_no_cut_through_a_grapheme_or_an_entity_of_a_text_without_spaces(
        self, text: str, limit: int
    ) -> None:
        units = re.findall(
            rf"{FAMILY}|\U0001f1e9\U0001f1ea|e\u0301\u0302|&amp;|.", text, flags=re.DOTALL
        )
        ends, at = set(), 0
        for unit in units:
            at += len(unit)
            ends.add(at)
        assert set(cuts(split(text, limit))) <= ends

    @given(TEXTS, LIMITS)
    def test_no_cut_through_an_entity_or_a_token(self, text: str, limit: int) -> None:
        places = cuts(split(text, limit))
        for found in re.finditer(r"&(?:amp|lt|gt);|<[^<>\n]{1,40}>", text):
            assert not [place for place in places if found.start() < place < found.end()]

    @given(TEXTS, LIMITS)
    def test_what_is_added_are_fences_and_signs_of_quotes(self, text: str, limit: int) -> None:
        for chunk in split(text, limit):
            assert re.fullmatch(r"([\s>]*(`{3,}|~{3,})\S*\n|[ \t]*(>[ \t]?)+)?", chunk.opened)
            assert re.fullmatch(r"(\n?[\s>]*(`{3,}|~{3,}))?", chunk.closed)

    @given(
        st.lists(
            st.sampled_from(["x = 1\n", "\n", "if &lt; a:\n", "y" * 90 + "\n", "``\n", "\u6f22\n"]),
            min_size=1,
            max_size=60,
        ),
        st.sampled_from(["```python", "````", "~~~sql"]),
        LIMITS,
    )
    def test_code_stays_code_in_every_piece(
        self, lines: list[str], opener: str, limit: int
    ) -> None:
        fence = opener.rstrip("pythonsql")
        text = f"before\n{opener}\n{''.join(lines)}{fence}\nafter"
        shown = ""
        for chunk in split(text, limit):
            for token in MarkdownIt().parse(chunk.text):
                if token.type == "fence":
                    assert token.info == opener.removeprefix(fence)
                    shown += token.content
                else:
                    assert token.content in ("", "before", "after")
        assert shown.replace("\n", "") == "".join(lines).replace("\n", "")


class TestPlaces:
    """Where a text is cut."""

    def test_a_text_within_the_limit_is_one_piece(self) -> None:
        assert split("a\n\nb", 80) == [Chunk("a\n\nb")]
        assert split("", 80) == []

    def test_paragraphs_stay_whole(self) -> None:
        text = "\n\n".join([words(12)] * 3)
        assert [chunk.body for chunk in split(text, 130)] == [
            f"{words(12)}\n\n{words(12)}\n\n",
            words(12),
        ]

    def test_then_lines_then_sentences_then_words(self) -> None:
        lines = "\n".join(["x" * 50] * 3)
        assert [len(chunk.body) for chunk in split(lines, 110)] == [102, 50]
        sentences = f"{words(12)}. {words(12)}."
        assert split(sentences, 100)[0].body == f"{words(12)}. "
        assert split(words(40), 100)[0].body == words(20) + " "

    def test_list_items_stay_whole(self) -> None:
        text = "\n".join(f"- {words(11)}" for _ in range(4))
        assert [chunk.body.count("- ") for chunk in split(text, 130)] == [2, 2]
        assert all(chunk.body.startswith("- ") for chunk in split(text, 130))

    def test_a_heading_goes_with_what_it_stands_over(self) -> None:
        for heading in ("# Title", "*Title*"):
            chunks = split(f"{words(15)}\n\n{heading}\n\n{words(15)}", 100)
            assert [chunk.body for chunk in chunks] == [
                f"{words(15)}\n\n",
                f"{heading}\n\n{words(15)}",
            ]

    def test_code_that_fits_a_piece_is_not_cut(self) -> None:
        code = "```py\n" + "x = 1\n" * 10 + "```"
        assert [chunk.body for chunk in split(f"{words(15)}\n{code}", 100)] == [
            f"{words(15)}\n",
            code,
        ]

    def test_longer_code_is_closed_and_opened_again_between_lines(self) -> None:
        lines = [f"print({number})" for number in range(40)]
        text = "Look:\n````python title\n" + "\n".join(lines) + "\n````\nDone."
        chunks = split(text, 120)
        assert chunks[0].text.startswith("Look:\n````python title\nprint(0)\n")
        assert chunks[0].text.endswith("\n````")
        assert all(chunk.opened == "````python\n" for chunk in chunks[1:] if chunk.body != "Done.")
        assert "".join(chunk.text for chunk in chunks).endswith("print(39)\n````\nDone.")
        shown = re.findall(r"print\(\d+\)\n", "".join(chunk.text for chunk in chunks))
        assert [line.strip() for line in shown] == lines

    def test_no_piece_of_code_is_empty(self) -> None:
        for limit in range(80, 140):
            for chunk in split("```\n" + "x = 1\n" * 30 + "```\n", limit):
                assert "x = 1" in chunk.text

    def test_code_in_a_list_and_in_a_quote_opens_as_it_was(self) -> None:
        listed = split("- ```sh\n" + "  ls\n" * 40 + "  ```", 80)
        assert listed[1].opened == "  ```sh\n"
        assert listed[0].closed == "  ```"
        quoted = split("> ```\n" + "> ls\n" * 40 + "> ```", 80)
        assert quoted[1].opened == "> ```\n"

    def test_a_fence_shown_in_a_longer_fence_does_not_end_it(self) -> None:
        text = "````md\n```\n" + "inside\n" * 20 + "```\n````\nout"
        assert all("````" in chunk.text for chunk in split(text, 100))

    def test_code_that_was_left_open_is_closed(self) -> None:
        assert split("```py\nx", 80) == [Chunk("```py\nx", closed="\n```")]

    def test_a_quoted_line_that_is_cut_stays_quoted(self) -> None:
        chunks = split(f"> {words(40)}", 100)
        assert all(chunk.text.startswith("> ") for chunk in chunks)

    def test_a_link_that_fits_is_not_cut(self) -> None:
        link = f"<https://x.test/{'a' * 50}|a b c d>"
        chunks = split(f"{words(8)} {link} {words(8)}", 80)
        assert any(link in chunk.body for chunk in chunks)

    def test_marked_words_stay_together(self) -> None:
        for before in range(15, 25):
            text = f"{words(before)} **these four bold words** {words(20)}"
            assert any("**these four bold words**" in chunk.body for chunk in split(text, 110))

    def test_one_table_a_piece_and_so_many_headings(self) -> None:
        table = "| a |\n| - |\n| 1 |\n\n"
        assert [chunk.body.count("| a |") for chunk in split(table * 3, 900, tables=1)] == [1, 1, 1]
        headings = "# h\n\ntext\n\n" * 10
        pieces = split(headings, 900, breakers=4)
        assert [chunk.body.count("#") for chunk in pieces] == [4, 4, 2]

    def test_lengths_are_those_of_utf_16(self) -> None:
        assert length("a\U0001f600") == 3
        assert [len(chunk.body) for chunk in split("\U0001f600" * 60, 80)] == [40, 20]

    def test_a_limit_without_room_for_code_is_refused(self) -> None:
        with pytest.raises(ValueError, match="80 or more"):
            split("x", 79)


class TestTruncate:
    """The beginning of a text."""

    def test_a_short_text_is_untouched(self) -> None:
        assert truncate("abc", 80) == "abc"

    @given(TEXTS.filter(bool), LIMITS.filter(lambda limit: limit >= 82))
    def test_a_long_one_ends_in_an_ellipsis(self, text: str, limit: int) -> None:
        shown = truncate(text, limit)
        assert length(shown) <= limit
        assert shown == text or shown.endswith("…")

    def test_code_is_closed(self) -> None:
        assert truncate("```\n" + "x\n" * 100, 90).endswith("x\n```\n…")
