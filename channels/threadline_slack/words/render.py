"""Text out: Markdown as models write it to Slack's mrkdwn.

Which form to post. Slack has two dialects for text: mrkdwn, for ``text`` and section blocks, and
since 2025 standard Markdown, for ``markdown`` blocks and the ``markdown_text`` of streams. Since
March 2026 a markdown block shows real headings, lists that hang, tables, task lists and highlighted
code, none of which mrkdwn has, and Slack gives it for what models write; so
``threadline_slack.words.compose`` posts markdown blocks by default. Their ``text`` is mrkdwn all
the same: notifications, search, screen readers, older clients and servers that refuse the block
show it, so it says what the block says as far as it fits, and everything can be posted in it alone.
Not rich text blocks, which are safe by construction: a stream takes Markdown, and the message it
leaves should look like one that was posted.
https://docs.slack.dev/reference/block-kit/blocks/markdown-block
https://docs.slack.dev/messaging/formatting-message-text

What mrkdwn lacks is written out: a heading is bold, a bullet a character, a table an aligned
block of code. mrkdwn marks count only beside a space or punctuation, so a zero-width space goes
between a mark and a letter; and it has no escape, so a literal mark that would format is replaced
by a character that looks like it (never in code).

``<`` and ``>`` are only ever written here: for links to http, https and mailto, for mentions whose
ids the caller allows, and for quotes. All other text is escaped, in code as well.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from markdown_it.tree import SyntaxTreeNode

from threadline_slack.words.parse import parse, safe_url
from threadline_slack.words.tables import layout
from threadline_slack.words.tokens import ZERO_WIDTH_SPACE, escape, inert_words, mention_or_words

__all__ = ["Words", "mrkdwn"]

_BULLETS = "•◦▪"
_RULE = "─" * 12
_FENCE = "```"
_LONGEST_LABEL = 300  # characters; a token must fit a section, whole
_TASK = re.compile(r"\[([ xX])\]\s+")
_LINE_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_UNSEEN_HTML = re.compile(
    r"<!--.*-->|</?(?:b|big|center|code|del|details|div|em|font|h[1-6]|i|ins|kbd|mark|p|s|small"
    r"|span|strike|strong|sub|summary|sup|u)(?:[\s/][^>]*)?>",
    re.IGNORECASE | re.DOTALL,
)

_MARKS = "*_~`"
_EMPHASES = {"strong": "*", "em": "_", "s": "~"}
_LOOK_ALIKES = dict(zip(_MARKS, "∗ˍ∼ˋ", strict=True))
# While a line is put together, marks are noncharacters, which no text can hold (see `clean`).
_OPEN, _CLOSE, _LITERAL = (
    dict(zip(_MARKS, chars, strict=True))
    for chars in (
        "\ufdd0\ufdd1\ufdd2\ufdd3",
        "\ufdd4\ufdd5\ufdd6\ufdd7",
        "\ufdd8\ufdd9\ufdda\ufddb",
    )
)
_LITERALS = str.maketrans(_LITERAL)
_RUN = re.compile("[\ufdd0-\ufdd3]+|[\ufdd4-\ufdd7]+")
_OPAQUE = re.compile("\ufdd3[^\ufdd7]*\ufdd7|<[^>]*>")
_BEFORE_OPENING = frozenset(" \t\n([{-–—/:;,.!?'\"|" + "".join(_CLOSE.values()))
_BEHIND_CLOSING = frozenset(" \t\n)]}-–—/:;,.!?'\"|")


def mrkdwn(
    markdown: str, *, mentions: Collection[str] = (), names: Mapping[str, str] | None = None
) -> str:
    """Return Markdown as mrkdwn.

    ``mentions`` are the ids of users, groups and channels that may be live; all others become
    words, by their names where ``names`` has them. Broadcasts are never live.
    """
    return _Mrkdwn(mentions, names or {}).blocks(parse(markdown).children)


class Words:
    """What both renderers make of the parts of a text that are not formatting."""

    def __init__(self, mentions: Collection[str], names: Mapping[str, str]) -> None:
        self._mentions = mentions
        self._names = names

    def token(self, node: SyntaxTreeNode) -> tuple[str, bool]:
        """Return what a Slack token becomes, and whether that is a live token."""
        return mention_or_words(node.meta["found"], self._mentions, self._names)

    def html(self, tag: str) -> str:
        """Return what an HTML tag shows: a line break, nothing, or itself when it is no HTML."""
        if _LINE_BREAK.fullmatch(tag):
            return "\n"
        return "" if _UNSEEN_HTML.fullmatch(tag) else tag

    def plain(self, nodes: Sequence[SyntaxTreeNode]) -> str:
        """Return inline nodes without formatting, on one line; links as ``label (url)``."""
        return " ".join("".join(self._plain(node) for node in nodes).split())

    def _plain(self, node: SyntaxTreeNode) -> str:
        match node.type:
            case "text":
                return inert_words(node.content)
            case "code_inline":
                return node.content
            case "softbreak" | "hardbreak":
                return " "
            case "html_inline":
                return self.html(node.content)
            case "slack":
                live_or_words, live = self.token(node)
                return self.unlinked(node) if live else live_or_words
            case "link":
                label, url = self.plain(node.children), str(node.attrs.get("href", ""))
                if node.markup == "autolink":
                    return label
                return label if _same(label, url) or not url else f"{label} ({url})".lstrip()
            case _:
                return self.plain(node.children)

    def unlinked(self, node: SyntaxTreeNode) -> str:
        """Return a token as words even though it may be live, for places that cannot hold one."""
        return mention_or_words(node.meta["found"], (), self._names)[0]


def _same(label: str, url: str) -> bool:
    bare = re.sub(r"^(?:https?://|mailto:)", "", url)
    return is_target(label, url) or is_target(label, bare)


def is_target(label: str, url: str) -> bool:
    """True for a label that is the link's target, or nothing."""
    words, target = (part.replace(ZERO_WIDTH_SPACE, "").strip() for part in (label, url))
    return not words or words.rstrip("/") == target.rstrip("/")


class _Mrkdwn(Words):
    def blocks(self, nodes: Sequence[SyntaxTreeNode]) -> str:
        """Return blocks with a blank line between, save behind a heading."""
        said = ""
        glue = ""
        for node in nodes:
            if block := self._block(node):
                said += glue + block
                glue = "\n" if node.type == "heading" else "\n\n"
        return said

    def _block(self, node: SyntaxTreeNode) -> str:
        match node.type:
            case "paragraph":
                return self._line(node)
            case "heading":
                return self._heading(node)
            case "blockquote":
                return _quoted(self.blocks(node.children))
            case "bullet_list" | "ordered_list":
                return self._list(node, 0)
            case "fence" | "code_block":
                return _fenced(node.content.removesuffix("\n"))
            case "table":
                return self._table(node)
            case "hr":
                return _RULE
            case _:
                return self.blocks(node.children)

    def _line(self, node: SyntaxTreeNode) -> str:
        inline = "".join(self._inlines(child.children, frozenset()) for child in node.children)
        return _finished(inline.strip())

    def _heading(self, node: SyntaxTreeNode) -> str:
        bold = frozenset("*")
        inline = "".join(self._inlines(child.children, bold) for child in node.children)
        return _finished(_marked("*", inline, frozenset()))

    def _list(self, node: SyntaxTreeNode, depth: int) -> str:
        number = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else None
        lines = []
        for offset, item in enumerate(node.children):
            marker = _BULLETS[depth % len(_BULLETS)] if number is None else f"{number + offset}."
            checked = take_task(item)
            if checked is not None:
                marker = "☑" if checked else "☐"
            lines.append(self._item(item, marker, depth))
        return "\n".join(lines)

    def _item(self, item: SyntaxTreeNode, marker: str, depth: int) -> str:
        body = ""
        last = ""
        for node in item.children:
            nested = node.type in ("bullet_list", "ordered_list")
            block = self._list(node, depth + 1) if nested else self._block(node)
            glue = "\n\n" if node.type == last == "paragraph" else "\n"
            body += (glue if body else "") + block
            last = node.type
        indented = _prefixed(body, "    ")
        if indented.startswith("    ") and item.children[0].type == "paragraph":
            return f"{marker} {indented[4:]}"
        return f"{marker}\n{indented}".rstrip()

    def _table(self, node: SyntaxTreeNode) -> str:
        rows, aligns = table_cells(node)
        cells = [[self.plain(cell) for cell in row] for row in rows]
        return _fenced("\n".join(layout(cells, aligns)))

    def _inlines(self, nodes: Sequence[SyntaxTreeNode], active: frozenset[str]) -> str:
        return "".join(self._inline(node, active) for node in nodes)

    def _inline(self, node: SyntaxTreeNode, active: frozenset[str]) -> str:
        match node.type:
            case "text":
                return _text(node.content)
            case "softbreak" | "hardbreak":
                return "\n"
            case "code_inline":
                code = escape(node.content.replace("`", _LOOK_ALIKES["`"]))
                return _OPEN["`"] + code + _CLOSE["`"]
            case "strong" | "em" | "s":
                mark = _EMPHASES[node.type]
                return _marked(mark, self._inlines(node.children, active | {mark}), active)
            case "link":
                href = str(node.attrs.get("href", ""))
                return self._link(node.children, href, active, node.markup == "autolink")
            case "image":
                return self._image(node)
            case "html_inline":
                return _text(self.html(node.content))
            case "slack":
                live_or_words, live = self.token(node)
                return live_or_words if live else _text(live_or_words)
            case _:
                return self._inlines(node.children, active)

    def _link(
        self,
        label: Sequence[SyntaxTreeNode],
        href: str,
        active: frozenset[str],
        bare: bool = False,
    ) -> str:
        label = [node for node in label if node.type != "text" or node.content]
        if len(label) == 1 and (mark := _EMPHASES.get(label[0].type)):
            return _marked(mark, self._link(label[0].children, href, active | {mark}), active)
        url = safe_url(href)
        if url is None:
            return self._inlines(label, active) + (_text(f" ({href})") if href and not bare else "")
        words = self.plain(label)
        if is_target(words, href):
            return f"<{escape(url)}>"
        if len(words) > _LONGEST_LABEL:
            return f"{self._inlines(label, active)} (<{escape(url)}>)"
        return _token(url, words)

    def _image(self, node: SyntaxTreeNode) -> str:
        url, words = safe_url(str(node.attrs.get("src", ""))), self.plain(node.children)
        return _text(words) if url is None else _token(url, words or "image")


def take_task(item: SyntaxTreeNode) -> bool | None:
    """Take ``[ ]`` or ``[x]`` off a list item; return whether it is ticked, None without one."""
    node = item
    while node.type != "text":
        if not node.children or node.type not in ("list_item", "paragraph", "inline"):
            return None
        node = node.children[0]
    found = _TASK.match(node.content)
    if found is None or node.token is None:
        return None
    node.token.content = node.content[found.end() :]
    return found.group(1) != " "


def table_cells(
    node: SyntaxTreeNode,
) -> tuple[list[list[Sequence[SyntaxTreeNode]]], list[str]]:
    """Return a table's rows, the head first, each cell as its inline nodes; and the alignments."""
    rows = [row for part in node.children for row in part.children]
    aligns = [
        str(cell.attrs.get("style", "")).removeprefix("text-align:") or "left"
        for cell in rows[0].children
    ]
    return [[_inside(cell) for cell in row.children] for row in rows], aligns


def _inside(cell: SyntaxTreeNode) -> Sequence[SyntaxTreeNode]:
    return cell.children[0].children if cell.children else ()


def _token(url: str, words: str) -> str:
    return f"<{escape(url)}|{escape(words)}>"


def _text(words: str) -> str:
    return escape(inert_words(words)).translate(_LITERALS)


def _marked(mark: str, inline: str, active: frozenset[str]) -> str:
    """Return the text between marks, line by line: a mark does not reach across a line break."""
    if mark in active:
        return inline
    return "\n".join(_marked_line(mark, line) for line in inline.split("\n"))


def _marked_line(mark: str, line: str) -> str:
    core = line.strip()
    if not core:
        return line
    start = line.index(core)
    return line[:start] + _OPEN[mark] + core + _CLOSE[mark] + line[start + len(core) :]


def _finished(inline: str) -> str:
    """Return the text with its marks written out."""
    return "\n".join(_finished_line(line) for line in inline.split("\n"))


def _finished_line(line: str) -> str:
    line = _with_literals(line.strip())
    line = _RUN.sub(_written, line)
    # Slack reads an entity at the start of a line as a quote, too.
    return ZERO_WIDTH_SPACE + line if line.startswith("&gt;") else line


def _written(run: re.Match[str]) -> str:
    start, end = run.span()
    line, chars = run.string, run.group()
    if chars[0] in _OPEN.values():
        marks = "".join(mark for char in chars for mark in _MARKS if _OPEN[mark] == char)
        beside = line[start - 1] if start else " "
        return marks if beside in _BEFORE_OPENING else ZERO_WIDTH_SPACE + marks
    marks = "".join(mark for char in chars for mark in _MARKS if _CLOSE[mark] == char)
    beside = line[end] if end < len(line) else " "
    return marks if beside in _BEHIND_CLOSING else marks + ZERO_WIDTH_SPACE


def _with_literals(line: str) -> str:
    """Return the line with literal marks written out, as look-alikes where they would format."""
    for mark, literal in _LITERAL.items():
        if literal in line:
            line = _with_literal(line, mark, literal)
    return line


def _with_literal(line: str, mark: str, literal: str) -> str:
    if mark == "`":
        return line.replace(literal, _LOOK_ALIKES[mark])
    seen = _OPAQUE.sub(lambda opaque: "x" * len(opaque.group()), line)
    size = len(seen)
    opening = {at for at in range(size) if _formats(seen, at, 1, _OPEN[mark], literal)}
    closing = {at for at in range(size) if _formats(seen, at, -1, _CLOSE[mark], literal)}
    first, last = min(opening, default=size), max(closing, default=-1)
    live = {at for at in opening if at < last} | {at for at in closing if at > first}
    return "".join(
        char if char != literal else _LOOK_ALIKES[mark] if at in live else mark
        for at, char in enumerate(line)
    )


def _formats(line: str, at: int, inward: int, ours: str, literal: str) -> bool:
    """True for a mark of ours, and for a literal one with a boundary outside and text inside."""
    if line[at] != literal:
        return line[at] == ours
    outside, inside = (line[i] if 0 <= i < len(line) else " " for i in (at - inward, at + inward))
    return not inside.isspace() and not outside.isalnum()


def _fenced(code: str) -> str:
    """Return a block of code; mrkdwn has no longer fence, so a fence inside is broken up."""
    inside = re.sub("`{3,}", lambda run: ZERO_WIDTH_SPACE.join(run.group()), escape(code))
    return f"{_FENCE}\n{inside}\n{_FENCE}"


def _quoted(body: str) -> str:
    """Return the lines as a quote; mrkdwn has one level, so deeper ones show their sign."""
    return _prefixed(re.sub(r"^> ?", "&gt; ", body, flags=re.MULTILINE), "> ", blank=">")


def _prefixed(body: str, prefix: str, blank: str = "") -> str:
    """Put a prefix before each line but those of code, which are not ours to change, and quotes."""
    lines = []
    fenced = False
    for line in body.split("\n"):
        if line == _FENCE:
            fenced = not fenced
            lines.append(line)
        elif fenced or line.startswith(">"):
            lines.append(line)
        else:
            lines.append(prefix + line if line else blank)
    return "\n".join(lines)
