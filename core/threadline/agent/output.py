"""What a tool returns, as JSON can hold it."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

__all__ = ["clean_text", "conforming", "to_json"]

_SURROGATE = re.compile("[\ud800-\udfff]")


def to_json(value: Any) -> Any:
    """Return a value as JSON can hold it.

    Models are dumped by alias; bytes are text where they are UTF-8, else base64; NaN and
    infinities are null; lone surrogates U+FFFD; objects that JSON does not know their ``str``.
    Raises ValueError for a value that holds itself or is nested too deeply.
    """
    try:
        plain = _to_jsonable(value, "utf8")
    except UnicodeError:
        plain = _to_jsonable(_readable(value), "base64")
    return _clean(plain)


def conforming(adapter: TypeAdapter[Any], value: Any) -> Any:
    """Return a value of a declared type as JSON, in the form that its type gives it.

    Raises :class:`pydantic.ValidationError` when it is none.
    """
    validated = adapter.validate_python(value)
    try:
        return _clean(adapter.dump_python(validated, mode="json", by_alias=True, warnings=False))
    except UnicodeError:  # Bytes that are no text.
        return to_json(validated)


def _to_jsonable(value: Any, bytes_mode: Any) -> Any:
    return to_jsonable_python(value, by_alias=True, bytes_mode=bytes_mode, fallback=str)


def _readable(value: Any) -> Any:
    """Replace bytes and keys that are not text, as deep as containers and models go."""
    match value:
        case str():
            return clean_text(value)
        case bytes() | bytearray():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return base64.b64encode(value).decode()
        case BaseModel():  # Its own configuration would try to read its bytes as text again.
            return _readable(value.model_dump(by_alias=True))
        case Mapping():
            return {_readable(key): _readable(item) for key, item in value.items()}
        case list() | tuple() | AbstractSet():
            return [_readable(item) for item in value]
        case _:
            return value


def _clean(value: Any) -> Any:
    # Not left to pydantic, which keeps NaN and surrogates in the fields of models.
    match value:
        case str():
            return clean_text(value)
        case float():
            return value if math.isfinite(value) else None
        case bool():
            return value
        case int():
            # Most readers of JSON take what a double does not hold for an infinity, or give up.
            return value if abs(value) < 2**1023 else None
        case dict():
            return {clean_text(key): _clean(item) for key, item in value.items()}
        case list():
            return [_clean(item) for item in value]
        case _:
            return value


def clean_text(text: str) -> str:
    """Replace lone surrogates, which no UTF-8 file can hold."""
    return _SURROGATE.sub("\ufffd", text)
