"""What Slack accepts as blocks, by its documented limits; pure.

Sources: docs.slack.dev/reference/block-kit/blocks, one page a block. The sum over the markdown
blocks of a message is counted too, which the pages say and clients forget.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from threadline_slack.testing.model import Json

__all__ = ["MARKDOWN_LIMIT", "check_blocks", "identified"]

MARKDOWN_LIMIT = 12_000

_MESSAGE_BLOCKS = 50
_VIEW_BLOCKS = 100
_ID = 255
_BUTTON_TEXT = 75
_BUTTON_VALUE = 2_000
_URL = 3_000


def check_blocks(blocks: Any, *, view: bool = False) -> list[str]:
    """Return what is wrong with blocks, as Slack's ``response_metadata.messages`` says it."""
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        return ["[ERROR] must be an array of objects [json-pointer:/blocks]"]
    most = _VIEW_BLOCKS if view else _MESSAGE_BLOCKS
    problems = []
    if len(blocks) > most:
        problems.append(f"[ERROR] no more than {most} items allowed [json-pointer:/blocks]")
    for number, block in enumerate(blocks):
        kind = block.get("type")
        check = _CHECKS.get(kind) if isinstance(kind, str) else None
        found = [f"unsupported type: {kind}"] if check is None else list(check(block))
        if len(str(block.get("block_id", ""))) > _ID:
            found.append("block_id must be less than 256 characters")
        problems += [f"[ERROR] {text} [json-pointer:/blocks/{number}]" for text in found]
    return problems + _repeated(blocks) + _sums(blocks)


def identified(blocks: list[Json]) -> list[Json]:
    """Return blocks in which each has a ``block_id``, and what people can use an ``action_id``."""
    numbers = itertools.count(1)
    made = []
    for block in blocks:
        copy = {**block, "block_id": block.get("block_id") or f"blk{next(numbers)}"}
        if isinstance(block.get("elements"), list) and block.get("type") == "actions":
            copy["elements"] = [
                {**element, "action_id": element.get("action_id") or f"act{next(numbers)}"}
                for element in block["elements"]
            ]
        made.append(copy)
    return made


def _repeated(blocks: list[Json]) -> list[str]:
    ids = [block["block_id"] for block in blocks if block.get("block_id")]
    return ["[ERROR] block_id already exists"] if len(set(ids)) < len(ids) else []


def _sums(blocks: list[Json]) -> list[str]:
    markdown = sum(len(str(b.get("text", ""))) for b in blocks if b.get("type") == "markdown")
    tables = sum(block.get("type") == "table" for block in blocks)
    return [
        *(["[ERROR] msg_blocks_too_long"] if markdown > MARKDOWN_LIMIT else []),
        *(["[ERROR] only_one_table_allowed"] if tables > 1 else []),
    ]


# One block


def _text(value: Any, most: int, name: str = "text") -> Iterator[str]:
    """Check a text object."""
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        yield f"missing required field: {name}"
        return
    if value.get("type") not in ("mrkdwn", "plain_text"):
        yield f"{name}: unsupported type: {value.get('type')}"
    if not value["text"]:
        yield f"{name}: must be more than 0 characters"
    if len(value["text"]) > most:
        yield f"{name}: must be less than {most + 1} characters"


def _section(block: Json) -> Iterator[str]:
    if "text" not in block and "fields" not in block:
        yield "missing required field: text"
    if "text" in block:
        yield from _text(block["text"], 3_000)
    fields = block.get("fields", [])
    if len(fields) > 10:
        yield "fields: no more than 10 items allowed"
    for one in fields:
        yield from _text(one, 2_000, "fields")
    if "accessory" in block:
        yield from _element(block["accessory"])


def _header(block: Json) -> Iterator[str]:
    yield from _text(block.get("text"), 150)


def _markdown(block: Json) -> Iterator[str]:
    if not isinstance(block.get("text"), str) or not block["text"]:
        yield "missing required field: text"


def _context(block: Json) -> Iterator[str]:
    elements = block.get("elements")
    if not isinstance(elements, list) or not elements:
        yield "missing required field: elements"
    elif len(elements) > 10:
        yield "elements: no more than 10 items allowed"
    else:
        for element in elements:
            if element.get("type") != "image":
                yield from _text(element, 2_000, "elements")


def _actions(block: Json) -> Iterator[str]:
    elements = block.get("elements")
    if not isinstance(elements, list) or not elements:
        yield "missing required field: elements"
        return
    if len(elements) > 25:
        yield "elements: no more than 25 items allowed"
    ids = [element.get("action_id") for element in elements if element.get("action_id")]
    if len(set(ids)) < len(ids):
        yield "action_id already exists"
    for element in elements:
        yield from _element(element)


def _context_actions(block: Json) -> Iterator[str]:
    yield from _actions(block)
    elements = block.get("elements")
    if not isinstance(elements, list):
        return
    if len(elements) > 5:
        yield "elements: no more than 5 items allowed"
    for element in elements:
        kind = element.get("type") if isinstance(element, dict) else None
        if kind not in ("feedback_buttons", "icon_button"):
            yield f"elements: unsupported type: {kind}"
        elif kind == "feedback_buttons":
            yield from _feedback(element)


def _feedback(element: Json) -> Iterator[str]:
    for name in ("positive_button", "negative_button"):
        button = element.get(name)
        if not isinstance(button, dict) or not isinstance(button.get("value"), str):
            yield f"missing required field: {name}"
            continue
        yield from _text(button.get("text"), _BUTTON_TEXT, name)
        if len(button["value"]) > _BUTTON_VALUE:
            yield f"{name}: value must be less than {_BUTTON_VALUE + 1} characters"
        if len(str(button.get("accessibility_label", ""))) > _BUTTON_TEXT:
            yield f"{name}: accessibility_label must be less than {_BUTTON_TEXT + 1} characters"


def _element(element: Any) -> Iterator[str]:
    if not isinstance(element, dict) or not isinstance(element.get("type"), str):
        yield "elements: must provide an object with a type"
        return
    if len(str(element.get("action_id", ""))) > _ID:
        yield "action_id must be less than 256 characters"
    if element["type"] == "button":
        yield from _text(element.get("text"), _BUTTON_TEXT)
        if len(str(element.get("value", ""))) > _BUTTON_VALUE:
            yield f"value must be less than {_BUTTON_VALUE + 1} characters"
        if len(str(element.get("url", ""))) > _URL:
            yield f"url must be less than {_URL + 1} characters"
        if element.get("style") not in (None, "primary", "danger"):
            yield f"style: unsupported value: {element['style']}"


def _table(block: Json) -> Iterator[str]:
    rows = block.get("rows")
    if not isinstance(rows, list) or not rows:
        yield "missing required field: rows"
        return
    if len(rows) > 100:
        yield "rows: no more than 100 items allowed"
    if any(len(row) > 20 for row in rows):
        yield "rows: no more than 20 cells allowed in a row"


def _image(block: Json) -> Iterator[str]:
    if not block.get("alt_text"):
        yield "missing required field: alt_text"
    if not block.get("image_url") and not block.get("slack_file"):
        yield "missing required field: image_url"


def _input(block: Json) -> Iterator[str]:
    yield from _text(block.get("label"), 2_000, "label")
    yield from _element(block.get("element"))


def _rich_text(block: Json) -> Iterator[str]:
    if not isinstance(block.get("elements"), list):
        yield "missing required field: elements"


def _task_card(block: Json) -> Iterator[str]:
    if not block.get("task_id") or not block.get("title"):
        yield "missing required field: title"


def _plan(block: Json) -> Iterator[str]:
    if not block.get("title"):
        yield "missing required field: title"


def _any(block: Json) -> Iterator[str]:
    del block
    yield from ()


_CHECKS: dict[str, Callable[[Json], Iterator[str]]] = {
    "actions": _actions,
    "context": _context,
    "context_actions": _context_actions,
    "divider": _any,
    "file": _any,
    "header": _header,
    "image": _image,
    "input": _input,
    "markdown": _markdown,
    "plan": _plan,
    "rich_text": _rich_text,
    "section": _section,
    "table": _table,
    "task_card": _task_card,
    "video": _any,
}
