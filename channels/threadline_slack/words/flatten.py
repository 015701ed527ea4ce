"""Blocks and attachments to plain text: what a post says when its ``text`` does not say it.

Alerting apps put everything into attachments or blocks and leave ``text`` empty or a summary.
Every block that shows text is read, those that this module does not know by the texts they hold.
https://docs.slack.dev/reference/block-kit/blocks
https://docs.slack.dev/legacy/legacy-messaging/legacy-secondary-message-attachments
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from threadline_slack.words.reading import Reader

__all__ = ["attachments_text", "blocks_text"]

_NO_FALLBACK = {"", "[no preview available]"}
_DEPTH = 12
_TEXT_KEYS = ("title", "subtitle", "text", "body", "description", "caption", "alt_text")
_MARKS = (("code", "`"), ("strike", "~"), ("italic", "_"), ("bold", "*"))


def blocks_text(blocks: Any, reader: Reader) -> str:
    """Return what the blocks say, one block a paragraph."""
    return _join((_block(block, reader) for block in _dicts(blocks)), "\n")


def attachments_text(attachments: Any, reader: Reader) -> str:
    """Return what the attachments say, a blank line between them."""
    return _join((_attachment(attachment, reader) for attachment in _dicts(attachments)), "\n\n")


def _attachment(attachment: dict[str, Any], reader: Reader) -> str:
    def read(key: str) -> str:
        return reader.mrkdwn(_string(attachment.get(key)))

    title, link = read("title"), _string(attachment.get("title_link"))
    parts = [
        read("pretext"),
        read("author_name"),
        reader.link(link, title) if link else title,
        read("text"),
        *(_field(field, reader) for field in _dicts(attachment.get("fields"))),
        blocks_text(attachment.get("blocks"), reader),
    ]
    if not read("text"):
        parts += [_quoted(quoted, reader) for quoted in _dicts(attachment.get("message_blocks"))]
    parts += [_actions(attachment, reader), read("footer")]
    said = _join(parts, "\n")
    fallback = read("fallback")
    return said if said or fallback.strip() in _NO_FALLBACK else fallback


def _field(field: dict[str, Any], reader: Reader) -> str:
    title = reader.mrkdwn(_string(field.get("title")))
    value = reader.mrkdwn(_string(field.get("value")))
    return f"{title}: {value}" if title and value else title or value


def _quoted(quoted: dict[str, Any], reader: Reader) -> str:
    message = quoted.get("message")
    return blocks_text(message.get("blocks"), reader) if isinstance(message, dict) else ""


def _block(block: dict[str, Any], reader: Reader) -> str:
    read = _BLOCKS.get(_string(block.get("type")))
    return read(block, reader) if read is not None else _unknown(block, reader)


def _section(block: dict[str, Any], reader: Reader) -> str:
    accessory = block.get("accessory")
    return _join(
        [
            _text(block.get("text"), reader),
            *(_text(field, reader) for field in _dicts(block.get("fields"))),
            _element(accessory, reader) if isinstance(accessory, dict) else "",
        ],
        "\n",
    )


def _context(block: dict[str, Any], reader: Reader) -> str:
    return _join((_element(element, reader) for element in _dicts(block.get("elements"))), " ")


def _element(element: dict[str, Any], reader: Reader) -> str:
    match _string(element.get("type")):
        case "image":
            return _image(element, reader)
        case "mrkdwn" | "plain_text":
            return _text(element, reader)
        case _:
            return _button(element, reader)


def _button(element: dict[str, Any], reader: Reader) -> str:
    """Return a button that leads somewhere; one that only the app understands says nothing."""
    url, text = _string(element.get("url")), element.get("text")
    if not url:
        return ""
    label = _text(text, reader) if isinstance(text, dict) else reader.plain(_string(text))
    return reader.link(url, label)


def _actions(block: dict[str, Any], reader: Reader) -> str:
    elements = _dicts(block.get("elements") or block.get("actions"))
    return _join((_button(element, reader) for element in elements), "\n")


def _image(block: dict[str, Any], reader: Reader) -> str:
    words = _join([_text(block.get("title"), reader), reader.plain(_alt(block))], ": ")
    return f"[image: {words}]" if words else "[image]"


def _alt(block: dict[str, Any]) -> str:
    title, alt = block.get("title"), _string(block.get("alt_text"))
    return "" if isinstance(title, dict) and title.get("text") == alt else alt


def _markdown(block: dict[str, Any], reader: Reader) -> str:
    return reader.mrkdwn(_string(block.get("text")))


def _table(block: dict[str, Any], reader: Reader) -> str:
    rows = block.get("rows")
    lines = [
        " | ".join(_cell(cell, reader) for cell in row)
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, list)
    ]
    return _join([_text(block.get("caption"), reader), *lines], "\n")


def _cell(cell: Any, reader: Reader) -> str:
    if not isinstance(cell, dict):
        return ""
    if cell.get("type") == "rich_text":
        return " ".join(_rich_text(cell, reader).split("\n"))
    value = cell.get("text", cell.get("value", ""))
    return _text(value, reader) if isinstance(value, dict) else reader.plain(str(value))


def _text(value: Any, reader: Reader) -> str:
    """Return a text object, or a bare string, as plain text."""
    if isinstance(value, str):
        return reader.mrkdwn(value)
    if not isinstance(value, dict):
        return ""
    text = _string(value.get("text"))
    return reader.plain(text) if value.get("type") == "plain_text" else reader.mrkdwn(text)


def _unknown(block: dict[str, Any], reader: Reader, depth: int = 0) -> str:
    """Return the texts of a block of an unknown type, in the order in which it holds them."""
    if depth > _DEPTH:
        return ""
    if block.get("type") == "rich_text":
        return _rich_text(block, reader)
    parts = []
    for key, value in block.items():
        if isinstance(value, str):
            parts.append(_text(value, reader) if key in _TEXT_KEYS else "")
        elif isinstance(value, dict) and value.get("type") in ("plain_text", "mrkdwn"):
            parts.append(_text(value, reader))
        else:
            parts += [_unknown(child, reader, depth + 1) for child in _dicts(value)]
    return _join(parts, "\n")


def _rich_text(block: dict[str, Any], reader: Reader, depth: int = 0) -> str:
    if depth > _DEPTH:
        return ""
    counters: dict[int, int] = {}
    parts = []
    for element in _dicts(block.get("elements")):
        if element.get("type") == "rich_text_list":
            parts.append(_rich_list(element, reader, counters))
            continue
        counters.clear()
        parts.append(_rich_element(element, reader, depth))
    return _join((part.strip("\n") for part in parts), "\n")


def _rich_element(element: dict[str, Any], reader: Reader, depth: int) -> str:
    match _string(element.get("type")):
        case "rich_text_preformatted":
            return f"```\n{_inline(element, reader, marks=False)}\n```"
        case "rich_text_quote":
            return "\n".join(f"> {line}" for line in _inline(element, reader).split("\n"))
        case "rich_text_section":
            return _inline(element, reader)
        case _:
            return _rich_text(element, reader, depth + 1)


def _rich_list(element: dict[str, Any], reader: Reader, counters: dict[int, int]) -> str:
    """Return a list with its markers; numbers go on across lists of deeper levels in between."""
    indent = _number(element.get("indent"))
    for deeper in [level for level in counters if level > indent]:
        del counters[deeper]
    ordered = element.get("style") == "ordered"
    if "offset" in element or not ordered:
        counters[indent] = _number(element.get("offset"))
    lines = []
    for item in _dicts(element.get("elements")):
        counters[indent] = counters.get(indent, 0) + 1
        marker = f"{counters[indent]}." if ordered else "-"
        inside = (
            _rich_list(item, reader, {})
            if item.get("type") == "rich_text_list"
            else _inline(item, reader)
        )
        lines.append(f"{'  ' * indent}{marker} {inside}".rstrip())
    return "\n".join(lines)


def _inline(section: dict[str, Any], reader: Reader, *, marks: bool = True) -> str:
    return "".join(_run(run, reader, marks) for run in _dicts(section.get("elements")))


def _run(run: dict[str, Any], reader: Reader, marks: bool) -> str:
    text = _run_text(run, reader)
    style = run.get("style")
    core = text.strip()
    if not marks or not core or not isinstance(style, dict):
        return text
    marked = core
    for name, mark in _MARKS:
        if style.get(name):
            marked = f"{mark}{marked}{mark}"
    return text.replace(core, marked, 1)


def _run_text(run: dict[str, Any], reader: Reader) -> str:
    match _string(run.get("type")):
        case "text":
            return reader.plain(_string(run.get("text")))
        case "user":
            return reader.user(_string(run.get("user_id")))
        case "usergroup":
            return reader.group(_string(run.get("usergroup_id")))
        case "channel":
            return reader.channel(_string(run.get("channel_id")))
        case "broadcast":
            return reader.broadcast(_string(run.get("range")))
        case "emoji":
            return f":{_string(run.get('name'))}:"
        case "link":
            return reader.link(_string(run.get("url")), reader.plain(_string(run.get("text"))))
        case "date":
            return reader.plain(_string(run.get("fallback"))) or str(run.get("timestamp", ""))
        case "color":
            return _string(run.get("value"))
        case "team":
            return _string(run.get("team_id"))
        case _:
            return reader.plain(_string(run.get("text") or run.get("fallback")))


def _nothing(block: dict[str, Any], reader: Reader) -> str:
    return ""


_BLOCKS: dict[str, Callable[[dict[str, Any], Reader], str]] = {
    "actions": _actions,
    "context": _context,
    "context_actions": _actions,
    "data_table": _table,
    "divider": _nothing,
    "file": _nothing,
    "header": lambda block, reader: _text(block.get("text"), reader),
    "image": _image,
    "markdown": _markdown,
    "rich_text": _rich_text,
    "section": _section,
    "table": _table,
}


def _join(parts: Iterable[str], separator: str) -> str:
    return separator.join(part for part in parts if part.strip())


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value <= 100_000 else 0


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects in a list, or the object itself; what is neither is left out."""
    if isinstance(value, dict):
        yield value
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield item
            elif isinstance(item, list):
                yield from _dicts(item)
