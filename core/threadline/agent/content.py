"""Content envelopes: texts, images and files as the result of a tool.

A tool may return :class:`Content`, an :class:`Image` or a :class:`File`, a list that holds one, or
a mapping of the shape that the Model Context Protocol gives a tool's result:
``{"content": [{"type": "text", "text": …}, …], "isError"?, "structuredContent"?}``.
"""

from __future__ import annotations

import base64
import io
import json
import mimetypes
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel

from threadline.agent.output import to_json
from threadline.harness.base import Attachment

__all__ = ["MAX_ATTACHMENT", "MAX_ATTACHMENTS", "Content", "Envelope", "File", "Image", "envelope"]

MAX_ATTACHMENT = 10_000_000
MAX_ATTACHMENTS = 20_000_000
_MEGABYTE = 1_000_000
_KEYS = frozenset({"_meta", "content", "isError", "structuredContent"})
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"GIF8", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
    (b"%PDF-", 0, "application/pdf"),
)


class _Savable(Protocol):
    """A picture in memory, as Pillow has it."""

    def save(self, fp: Any, format: str | None = None) -> None: ...  # noqa: A002


Source: TypeAlias = bytes | bytearray | memoryview | str | os.PathLike[str] | _Savable


class File:
    """A file in a tool's result: its bytes, or the path to read them from now.

    ``media_type`` comes from the bytes or the name where it is not given. Raises ValueError for
    more than 10 MB, OSError for a path that cannot be read.
    """

    def __init__(
        self, source: Source, *, media_type: str | None = None, name: str | None = None
    ) -> None:
        if isinstance(source, (str, os.PathLike)):
            path = Path(source)
            _check_size(path.stat().st_size, path.name)
            name = name or path.name
            source = path.read_bytes()
        self.data = _bytes(source)
        self.name = name
        _check_size(len(self.data), name or type(self).__name__)
        self.media_type = media_type or self._media_type()

    def _media_type(self) -> str:
        return _known_type(self.data, self.name) or "application/octet-stream"

    def __repr__(self) -> str:
        """Show what it is without its bytes."""
        return f"<{type(self).__name__} {self.name or ''} {self.media_type} {len(self.data)} bytes>"

    @property
    def attachment(self) -> Attachment:
        """The bytes as a result carries them."""
        return Attachment(self.data, self.media_type, self.name)


class Image(File):
    """An image that the model may look at: bytes, a path, or what has Pillow's ``save``.

    Raises ValueError for bytes whose type is not known; give ``media_type`` then.
    """

    def __init__(
        self, source: Source, *, media_type: str | None = None, name: str | None = None
    ) -> None:
        super().__init__(source, media_type=media_type, name=name)
        if not self.media_type.startswith("image/"):
            raise ValueError(f"{name or 'Image'} is {self.media_type}, not an image: use File.")

    def _media_type(self) -> str:
        found = _known_type(self.data, self.name)
        if found is None:
            raise ValueError("What kind of image this is cannot be seen: give Image(media_type=…).")
        return found


class Content:
    """What a tool returns: texts, images and files in order.

    ``structured`` is a JSON value for programs, checked against the tool's output schema.
    ``is_error`` says that the call failed; the texts are then the sentence that says why.
    """

    def __init__(
        self, *parts: str | File | Image, structured: Any = None, is_error: bool = False
    ) -> None:
        for part in parts:
            if not isinstance(part, (str, File)):
                raise TypeError(
                    f"Content holds a {type(part).__name__}: give str, Image or File, and any "
                    "other value as structured=…."
                )
        self.parts = parts
        self.structured = structured
        self.is_error = is_error


@dataclass(frozen=True, slots=True)
class Envelope:
    """What an envelope holds: parts as the output shows them, and the bytes beside it.

    ``structured`` is None when there is none.
    """

    parts: Sequence[Mapping[str, Any]]
    attachments: Sequence[Attachment] = ()
    structured: Any = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """The texts, one after the other."""
        return "\n".join(part["text"] for part in self.parts if part["type"] == "text")

    @property
    def sentence(self) -> str:
        """What to say when this is an error."""
        said = self.text.strip()
        return said or (json.dumps(to_json(self.structured)) if self.structured is not None else "")

    def output(self) -> Any:
        """Return the structured value or the text alone, or both with what else there is."""
        texts = all(part["type"] == "text" for part in self.parts)
        if texts and self.structured is None:
            return self.text
        if texts and (not self.text.strip() or _says(self.text, self.structured)):
            return self.structured
        more = {} if self.structured is None else {"structuredContent": self.structured}
        return {"content": list(self.parts), **more}


def envelope(value: Any) -> Envelope | None:
    """Return what a tool's value holds if it is an envelope, else None.

    Raises ValueError for one that cannot be used.
    """
    match value:
        case Content():
            found = _gathered(value.parts, value.structured, value.is_error)
        case File():
            found = _gathered([value])
        case list() | tuple() if any(isinstance(item, File) for item in value):
            found = _gathered(map(_as_part, value))
        case BaseModel() if {"content", "isError"} <= type(value).model_fields.keys():
            return envelope(value.model_dump(by_alias=True, exclude_none=True))
        case Mapping() if _is_envelope(value):
            structured = value.get("structuredContent")
            found = _gathered(value["content"], structured, bool(value.get("isError")))
        case _:
            return None
    total = sum(len(item.data) for item in found.attachments)
    if total > MAX_ATTACHMENTS:
        raise ValueError(
            f"its attachments have {total / _MEGABYTE:.1f} MB; a result has at most "
            f"{MAX_ATTACHMENTS // _MEGABYTE} MB of them"
        )
    return found


def _is_envelope(value: Mapping[Any, Any]) -> bool:
    parts = value.get("content")
    if not isinstance(parts, (list, tuple)) or not value.keys() <= _KEYS:
        return False
    if not parts:
        return "isError" in value or "structuredContent" in value
    return all(isinstance(part, File) or _is_part(part) for part in parts)


def _is_part(part: Any) -> bool:
    if not isinstance(part, Mapping):
        return False
    match part.get("type"):
        case "text":
            return isinstance(part.get("text"), str)
        case "image" | "audio":
            return isinstance(part.get("data"), (str, bytes))
        case "resource_link":
            return isinstance(part.get("uri"), str)
        case "resource":
            inner = part.get("resource")
            return isinstance(inner, Mapping) and (
                isinstance(inner.get("text"), str) or isinstance(inner.get("blob"), (str, bytes))
            )
    return False


def _as_part(item: Any) -> Any:
    """Return what a list holds as a part of content: another value is shown as JSON."""
    if isinstance(item, (str, File)) or _is_part(item):
        return item
    return json.dumps(to_json(item), ensure_ascii=False)


def _gathered(parts: Iterable[Any], structured: Any = None, is_error: bool = False) -> Envelope:
    shown: list[Mapping[str, Any]] = []
    attachments: list[Attachment] = []
    for part in parts:
        here = _attachment(part)
        if here is not None:
            attachments.append(here)
        shown.append(_shown(part, here))
    return Envelope(shown, attachments, structured, is_error)


def _attachment(part: Any) -> Attachment | None:
    if isinstance(part, File):
        return part.attachment
    if not isinstance(part, Mapping):
        return None
    if part["type"] in ("image", "audio"):
        return _decoded(part["type"], part["data"], part.get("mimeType"), part.get("name"))
    if part["type"] == "resource" and part["resource"].get("blob") is not None:
        inner = part["resource"]
        name = PurePosixPath(urlsplit(str(inner.get("uri", ""))).path).name or None
        return _decoded("resource", inner["blob"], inner.get("mimeType"), name)
    return None


def _decoded(kind: str, data: str | bytes, media_type: Any, name: Any) -> Attachment:
    name = name if isinstance(name, str) else None
    _check_size(len(data) if isinstance(data, bytes) else len(data) * 3 // 4, name or f"its {kind}")
    try:
        raw = data if isinstance(data, bytes) else base64.b64decode(data, validate=True)
    except ValueError:
        raise ValueError(f"the data of its {kind} is not base64") from None
    known = media_type if isinstance(media_type, str) and media_type else _known_type(raw, name)
    return Attachment(raw, known or "application/octet-stream", name)


def _shown(part: Any, attachment: Attachment | None) -> dict[str, Any]:
    """Return a part as the output has it, without bytes."""
    if attachment is not None:
        kind = attachment.media_type.partition("/")[0]
        shown = {
            "type": kind if kind in ("image", "audio") else "file",
            "mediaType": attachment.media_type,
            "size": len(attachment.data),
        }
        return shown | ({"name": attachment.name} if attachment.name else {})
    return {"type": "text", "text": part} if isinstance(part, str) else _reference(part)


def _reference(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a text, or a resource that is named or quoted."""
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    inner = part["resource"] if part["type"] == "resource" else part
    named = {
        "uri": inner.get("uri"),
        "name": inner.get("name"),
        "description": inner.get("description"),
        "mediaType": inner.get("mimeType"),
        "text": inner.get("text"),
    }
    return {"type": part["type"]} | {k: str(v) for k, v in named.items() if v is not None}


def _says(text: str, structured: Any) -> bool:
    """Tell whether the text is the structured value in JSON, for those who read only texts."""
    try:
        said: Any = json.loads(text)
    except ValueError:
        return False
    return bool(said == structured)


# Bytes


def _bytes(source: Any) -> bytes:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    buffer = io.BytesIO()
    if callable(getattr(source, "save", None)):
        source.save(buffer, format=getattr(source, "format", None) or "PNG")
    elif callable(getattr(source, "savefig", None)):
        source.savefig(buffer, format="png")
    else:
        raise TypeError(f"Give bytes, a path or a picture, not a {type(source).__name__}.")
    return buffer.getvalue()


def _known_type(data: bytes, name: str | None) -> str | None:
    for signature, start, media_type in _SIGNATURES:
        if data.startswith(signature, start):
            return media_type
    return mimetypes.guess_type(name)[0] if name else None


def _check_size(size: int, what: str) -> None:
    if size > MAX_ATTACHMENT:
        raise ValueError(
            f"{what} has {size / _MEGABYTE:.1f} MB; an attachment has at most "
            f"{MAX_ATTACHMENT // _MEGABYTE} MB"
        )
