"""What a message looks like on the page: HTML of its texts, and the buttons to press; no I/O.

Every text is escaped before any tag of ours is added, so that nothing in a message is markup.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

__all__ = ["Part", "mrkdwn", "painted"]

Part: TypeAlias = dict[str, Any]
Names: TypeAlias = Callable[[str], str]

_FENCE = re.compile(r"```\n?(.*?)```", re.S)
_CODE = re.compile(r"`([^`\n]+)`")
_TOKEN = re.compile(r"<([^<>\n]+)>")
_EMOJI = re.compile(r":([a-z0-9_+-]+):")
_STYLES = [
    (re.compile(rf"(?<![\w{mark}]){mark}(?=\S)([^\n{mark}]+?)(?<=\S){mark}(?![\w{mark}])"), tag)
    for mark, tag in ((r"\*", "b"), ("_", "i"), ("~", "s"))
]
_QUOTE = re.compile(r"^&gt; ?(.*)$", re.M)
_FACES = {
    "white_check_mark": "✅",
    "heavy_check_mark": "✔️",
    "no_entry": "⛔",
    "hourglass": "⌛",
    "hourglass_flowing_sand": "⏳",
    "fast_forward": "⏩",
    "eyes": "👀",
    "warning": "⚠️",
    "octagonal_sign": "🛑",
    "speech_balloon": "💬",
    "thumbsup": "👍",
    "+1": "👍",
    "thumbsdown": "👎",
    "-1": "👎",
    "x": "❌",
    "inbox_tray": "📥",
    "leftwards_arrow_with_hook": "↩️",
}
_BUTTONS = ("button", "feedback_buttons", "icon_button")


def painted(message: Mapping[str, Any], names: Names) -> list[Part]:
    """Return the parts of a message as Slack's JSON has it, in order.

    A part is ``{"html": …}`` or ``{"buttons": [{"action", "value", "label", "style"}]}``; ``names``
    maps the ids of users and channels to what is shown.
    """
    text = str(message.get("text") or "")
    blocks = list(message.get("blocks") or ())
    parts: list[Part] = []
    if message.get("streaming_state") or not blocks or _is_typed(blocks):
        parts.append({"html": mrkdwn(text, names)})
    for block in blocks:
        parts += _block(block, names)
    for attachment in message.get("attachments") or ():
        parts += _attachment(attachment, names)
    return [part for part in parts if part.get("html") or part.get("buttons")]


def mrkdwn(text: str, names: Names) -> str:
    """Return Slack's mrkdwn as HTML."""
    pieces = _FENCE.split(text)
    return "".join(
        f"<pre>{html.escape(html.unescape(piece))}</pre>" if number % 2 else _lines(piece, names)
        for number, piece in enumerate(pieces)
    )


def _lines(text: str, names: Names) -> str:
    pieces = _CODE.split(text)
    made = "".join(
        f"<code>{html.escape(html.unescape(piece))}</code>" if number % 2 else _words(piece, names)
        for number, piece in enumerate(pieces)
    )
    made = _QUOTE.sub(r"<blockquote>\1</blockquote>", made.strip("\n"))
    return made.replace("\n", "<br>").replace("</blockquote><br>", "</blockquote>")


def _words(text: str, names: Names) -> str:
    """Return plain words as HTML: tokens are kept apart, so that no style reaches into them."""
    tokens: list[str] = []

    def keep(found: re.Match[str]) -> str:
        tokens.append(_token(html.unescape(found.group(1)), names))
        return f"\0{len(tokens) - 1}\0"

    escaped = html.escape(html.unescape(_TOKEN.sub(keep, text.replace("\0", ""))), quote=False)
    for pattern, tag in _STYLES:
        escaped = pattern.sub(rf"<{tag}>\1</{tag}>", escaped)
    escaped = _EMOJI.sub(lambda found: _face(found.group(1)), escaped)
    return re.sub(r"\0(\d+)\0", lambda found: tokens[int(found.group(1))], escaped)


def _token(target: str, names: Names) -> str:
    target, _, label = target.partition("|")
    if target[:1] in "@#":
        return f'<span class="mention">{html.escape(target[0] + names(target[1:]))}</span>'
    if target.startswith("!"):
        word = label or "@" + target[1:].partition("^")[0]
        return f'<span class="mention">{html.escape(word)}</span>'
    shown = html.escape(label or target)
    if not target.startswith(("https://", "http://", "mailto:")):
        return shown
    return f'<a href="{html.escape(target)}" rel="noreferrer" target="_blank">{shown}</a>'


def _face(name: str) -> str:
    return _FACES.get(name, f":{name}:")


def _is_typed(blocks: Iterable[Any]) -> bool:
    """Tell whether blocks say no more than the text: those that Slack's editor makes."""
    return all(block.get("type") == "rich_text" for block in blocks)


# Blocks


def _block(block: Mapping[str, Any], names: Names) -> list[Part]:
    match block.get("type"):
        case "markdown":
            return [{"html": _markdown(str(block.get("text", "")), names)}]
        case "section":
            fields = [_text(one, names) for one in block.get("fields") or ()]
            shown = "<br>".join(one for one in (_text(block.get("text"), names), *fields) if one)
            return [{"html": shown}, *_buttons([block.get("accessory")])]
        case "header":
            return [{"html": f"<h3>{_text(block.get('text'), names)}</h3>"}]
        case "context":
            said = " ".join(_text(one, names) for one in block.get("elements") or ())
            return [{"html": f"<small>{said}</small>"}]
        case "divider":
            return [{"html": "<hr>"}]
        case "actions" | "context_actions":
            return _buttons(block.get("elements") or ())
        case "image":
            return [{"html": html.escape(str(block.get("alt_text", "")))}]
        case "table":
            return [{"html": _table(block.get("rows") or (), names)}]
    return []


def _text(value: Any, names: Names) -> str:
    """Return a text object's HTML."""
    if not isinstance(value, Mapping):
        return ""
    text = str(value.get("text") or value.get("alt_text") or "")
    return mrkdwn(text, names) if value.get("type") == "mrkdwn" else html.escape(text)


def _buttons(elements: Iterable[Any]) -> list[Part]:
    found: list[Part] = []
    for element in elements:
        if not isinstance(element, Mapping) or element.get("type") not in _BUTTONS:
            continue
        pressed = [element]
        if element["type"] == "feedback_buttons":
            pressed = [element.get("positive_button", {}), element.get("negative_button", {})]
        found += [
            {
                "action": str(element.get("action_id", "")),
                "value": one.get("value"),
                "label": str((one.get("text") or {}).get("text") or "…"),
                "style": str(one.get("style") or ""),
            }
            for one in pressed
        ]
    return [{"buttons": found}] if found else []


def _table(rows: Iterable[Any], names: Names) -> str:
    made = "".join(
        "<tr>" + "".join(f"<td>{_cell(cell, names)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table>{made}</table>"


def _cell(cell: Any, names: Names) -> str:
    if not isinstance(cell, Mapping):
        return ""
    if "elements" not in cell:
        return html.escape(str(cell.get("text") or names(str(cell.get("user_id") or ""))))
    return "".join(_cell(one, names) for one in cell["elements"])


def _attachment(attachment: Mapping[str, Any], names: Names) -> list[Part]:
    texts = [str(attachment.get(key) or "") for key in ("pretext", "title", "text")]
    said = [text for text in texts if text] or [str(attachment.get("fallback") or "")]
    parts: list[Part] = [
        {"html": f"<blockquote>{mrkdwn(chr(10).join(said), names)}</blockquote>"}
        if any(said)
        else {}
    ]
    for block in attachment.get("blocks") or ():
        parts += _block(block, names)
    return parts


# Markdown


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def _markdown(text: str, names: Names) -> str:
    made = _parser().render(text)

    def mention(found: re.Match[str]) -> str:
        return f'<span class="mention">{html.escape(found.group(1) + names(found.group(2)))}</span>'

    return re.sub(r"&lt;([@#])([A-Z0-9]+)(?:\|[^&]*)?&gt;", mention, made)
