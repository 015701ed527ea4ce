"""Text out: Markdown as models write it to Markdown that Slack reads as it was meant.

For ``markdown`` blocks; streams use `threadline_slack.words.defuse`. Slack reads its own ``<…>``
tokens in Markdown too, so ``<`` is written as an entity, which is shown as ``<`` and not read
again. In code, where an entity may be shown as it stands, a token is broken up by a zero-width
space.

Slack's parser follows CommonMark, so emphasis beside CJK characters and punctuation gets
zero-width spaces where CommonMark would not see emphasis.
https://docs.slack.dev/reference/block-kit/blocks/markdown-block

Limits that shape the output: Slack turns a table into a table block, of at most 100 rows of 20
cells and 10,000 characters, so a larger one becomes a block of code.
https://docs.slack.dev/reference/block-kit/blocks/table-block
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from markdown_it.tree import SyntaxTreeNode

from threadline_slack.words.parse import parse, safe_url
from threadline_slack.words.render import Words, is_target, table_cells, take_task
from threadline_slack.words.tables import layout
from threadline_slack.words.tokens import ZERO_WIDTH_SPACE, broken_up, escape, inert_words

__all__ = ["TABLE_CHARACTERS", "markdown"]

TABLE_CHARACTERS = 10_000
_TABLE_ROWS = 100
_TABLE_COLUMNS = 20

_SPECIAL = re.compile(r"[\\`\[]|(?<!\s)\*|\*(?!\s)|(?<![^\W_])_|_(?![^\W_])|~(?=~)|(?<=~)~")
_LINE_START = re.compile(
    r"(?:#{1,6}|[-+*]|=+|-+|~~~+)(?=\s|$)"  # a heading, an item, an underline, code
    r"|(?P<number>\d{1,9})(?P<point>[.)])(?=\s|$)"
    r"|[|:-](?=[ |:-]*$)"  # the rule under a table's head
)
_LANGUAGE = re.compile(r"[\w.+#-]{1,40}")


def markdown(
    source: str,
    *,
    mentions: Collection[str] = (),
    names: Mapping[str, str] | None = None,
    table_characters: int = TABLE_CHARACTERS,
) -> str:
    """Return Markdown for a markdown block.

    ``mentions`` are the ids of users, groups and channels that may be live; all others become
    words. A table of more than ``table_characters`` becomes a block of code.
    """
    return _Markdown(mentions, names or {}, table_characters).blocks(parse(source).children)


class _Markdown(Words):
    def __init__(
        self, mentions: Collection[str], names: Mapping[str, str], table_characters: int
    ) -> None:
        super().__init__(mentions, names)
        self._table_characters = table_characters

    def blocks(self, nodes: Sequence[SyntaxTreeNode], tight: bool = False) -> str:
        """Return blocks with a blank line between, save where a tight list has none."""
        said, last = "", ""
        for node in nodes:
            if block := self._block(node):
                close = tight and last == "paragraph" and _may_interrupt(node)
                said += ("\n" if close else "\n\n") * bool(said) + block
                last = node.type
        return said

    def _block(self, node: SyntaxTreeNode) -> str:
        match node.type:
            case "paragraph":
                return self._paragraph(node)
            case "heading":
                line = re.sub(
                    r"(?<=[ \t])#+$", r"\\\g<0>", self._paragraph(node).replace("\n", " ")
                )
                return f"{'#' * int(node.tag[1:])} {line}" if line else ""
            case "blockquote":
                return _prefixed(self.blocks(node.children), "> ", "> ")
            case "bullet_list" | "ordered_list":
                return self._list(node)
            case "fence" | "code_block":
                return _fenced(node.content.removesuffix("\n"), node.info)
            case "table":
                return self._table(node)
            case "hr":
                return "---"
            case _:
                return self.blocks(node.children)

    def _paragraph(self, node: SyntaxTreeNode) -> str:
        inline = "".join(self._inlines(child.children) for child in node.children)
        return "\n".join(_line(line.strip(" \t")) for line in inline.split("\n")).strip("\n")

    def _list(self, node: SyntaxTreeNode) -> str:
        number = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else None
        items = []
        for offset, item in enumerate(node.children):
            marker = "- " if number is None else f"{number + offset}. "
            checked = take_task(item)
            box = "" if checked is None else "[x] " if checked else "[ ] "
            body = box + self.blocks(item.children, tight=True)
            body = re.sub("^---", "***", body)  # "- ---" is all one rule
            items.append(_prefixed(body, marker, " " * len(marker)))
        return "\n".join(items)

    def _table(self, node: SyntaxTreeNode) -> str:
        rows, aligns = table_cells(node)
        lines = ["| " + " | ".join(self._cell(cell) for cell in row) + " |" for row in rows]
        rules = {"left": "---", "right": "--:", "center": ":-:"}
        lines.insert(1, "| " + " | ".join(rules.get(align, "---") for align in aligns) + " |")
        table = "\n".join(lines)
        if (
            len(rows) <= _TABLE_ROWS
            and len(aligns) <= _TABLE_COLUMNS
            and len(table) <= self._table_characters
        ):
            return table
        return _fenced("\n".join(layout([[self.plain(c) for c in row] for row in rows], aligns)))

    def _cell(self, nodes: Sequence[SyntaxTreeNode]) -> str:
        return " ".join(self._inlines(nodes).split()).replace("|", "\\|")

    def _inlines(
        self,
        nodes: Sequence[SyntaxTreeNode],
        active: frozenset[str] = frozenset(),
        before: str = " ",
        after: str = " ",
    ) -> str:
        """Return inline nodes; ``before`` and ``after`` are the characters around them."""
        nodes = [node for node in nodes if node.type != "text" or node.content]
        said = ""
        for at, node in enumerate(nodes):
            behind = _first(nodes[at + 1]) if at + 1 < len(nodes) else after
            inline = self._inline(node, (before + said)[-1], behind, active)
            # An entity right behind a scheme would be read as part of an address.
            apart = said.endswith("://") and inline.startswith("&")
            said += ZERO_WIDTH_SPACE + inline if apart else inline
        return said

    def _inline(self, node: SyntaxTreeNode, before: str, after: str, active: frozenset[str]) -> str:
        match node.type:
            case "text":
                text = _text(node.content)
                text = text.replace("]", "\\]") if "link" in active else text
                return text[:-1] + "\\!" if after == "[" and text.endswith("!") else text
            case "softbreak" | "hardbreak":
                return "\n"
            case "code_inline":
                return _guarded("", _code(node.content), "", before, after)
            case "strong" | "em" | "s":
                inline = self._inlines(node.children, active | {node.type}, before, after)
                mark = {"strong": "**", "em": "*", "s": "~~"}[node.type]
                return inline if node.type in active else _marked(mark, inline, before, after)
            case "link":
                return self._link(node, active)
            case "image":
                url, words = safe_url(str(node.attrs.get("src", ""))), self.plain(node.children)
                label = _text(words or "image").replace("]", "\\]")
                return _text(words) if url is None else _target(label, url)
            case "html_inline":
                return _text(self.html(node.content))
            case "slack":
                live_or_words, live = self.token(node)
                return live_or_words if live else _text(live_or_words)
            case _:
                return self._inlines(node.children, active)

    def _link(self, node: SyntaxTreeNode, active: frozenset[str]) -> str:
        href = str(node.attrs.get("href", ""))
        url, label = safe_url(href), self._inlines(node.children, active | {"link"})
        if url is None:
            return label + (_text(f" ({href})") if href and node.markup != "autolink" else "")
        if is_target(self.plain(node.children), href):
            return f"<{url}>"
        return _target(label.replace("\n", " "), url)


def _first(node: SyntaxTreeNode) -> str:
    """Return the character that a node starts with; a letter for one that keeps its distance."""
    if node.type in ("softbreak", "hardbreak"):
        return " "
    if node.type == "text":
        return node.content[0]
    target = node.attrs.get("href") or node.attrs.get("src")
    if target and safe_url(str(target)):
        return "["
    return {"slack": "<", "code_inline": "`"}.get(node.type, "x")


def _may_interrupt(node: SyntaxTreeNode) -> bool:
    """True for a block that can follow a paragraph without a blank line."""
    if node.type == "ordered_list":
        return node.attrs.get("start", 1) == 1
    return node.type in ("bullet_list", "fence", "code_block")


def _text(words: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", escape(inert_words(words)))


def _line(line: str) -> str:
    """Return a line of a paragraph that Markdown cannot read as the start of anything else."""
    start = _LINE_START.match(line)
    if start is None:
        return line
    at = start.end("number") if start["number"] else 0
    return f"{line[:at]}\\{line[at:]}"


def _marked(mark: str, inline: str, before: str, after: str) -> str:
    core = inline.strip()
    if not core:
        return inline
    core = re.sub(r"\s*\n\s*", "\n", core)  # no mark reaches across a blank line
    lead, tail = inline[: -len(inline.lstrip())], inline[len(inline.rstrip()) :]
    around = (before + lead)[-1], (tail + after)[0]
    return lead + _guarded(mark, core, mark, *around) + tail


def _guarded(opening: str, core: str, closing: str, before: str, after: str) -> str:
    """Return the text between its marks, with zero-width spaces where the marks would not count.

    A mark tight against a letter or CJK punctuation needs one outside, and one inside as well when
    its text ends in punctuation there.
    """
    if not _apart(before):
        opening += ZERO_WIDTH_SPACE if opening and _needs_guard(core[0]) else ""
        opening = ("" if before == ZERO_WIDTH_SPACE else ZERO_WIDTH_SPACE) + opening
    if not _apart(after):
        closing = (ZERO_WIDTH_SPACE if closing and _needs_guard(core[-1]) else "") + closing
        closing += "" if after == ZERO_WIDTH_SPACE else ZERO_WIDTH_SPACE
    return opening + core + closing


def _needs_guard(edge: str) -> bool:
    return not edge.isalnum() and edge != ZERO_WIDTH_SPACE


def _apart(char: str) -> bool:
    return char.isspace() or (char.isascii() and not char.isalnum())


def _code(code: str) -> str:
    ticks = "`" * _longest_run(code, "`", 1)
    pad = " " if code.startswith("`") or code.endswith("`") or not code.strip() else ""
    return f"{ticks}{pad}{broken_up(code)}{pad}{ticks}"


def _fenced(code: str, info: str = "") -> str:
    language = _LANGUAGE.match(info.strip())
    fence = "`" * _longest_run(code, "`", 3)
    return f"{fence}{language.group() if language else ''}\n{broken_up(code)}\n{fence}"


def _longest_run(text: str, char: str, least: int) -> int:
    """Return the least length of a run of the character that the text does not hold or exceed."""
    runs = {len(run) for run in re.findall(f"{re.escape(char)}+", text)}
    return max(least, max(runs, default=0) + 1)


def _target(label: str, url: str) -> str:
    for char in "()\\":
        url = url.replace(char, f"%{ord(char):02X}")
    return f"[{label}]({url})"


def _prefixed(body: str, first: str, others: str) -> str:
    prefixes = [first] + [others] * body.count("\n")
    return "\n".join(
        prefix + line if line else prefix.rstrip()
        for prefix, line in zip(prefixes, body.split("\n"), strict=True)
    )
