"""Known secret values, taken out of lines before they are written."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping

__all__ = ["masker", "secret_values"]

_NAME = re.compile(r"(TOKEN|SECRET|PASSWORD|API_KEY|ENCRYPTION_KEY|PRIVATE_KEY)$")
_SHORTEST = 8
MASK = b"[masked]"
_DIGIT = re.compile(rb"[0-9]")
_NUMBER = re.compile(rb"[0-9.eE+-]+")


def secret_values(
    environment: Mapping[str, str] | None = None, more: Iterable[str] = ()
) -> list[str]:
    """Return the values of variables whose names end like a secret's, and others that are given."""
    source = os.environ if environment is None else environment
    found = [value for name, value in source.items() if _NAME.search(name)]
    return sorted({v for v in [*found, *more] if len(v) >= _SHORTEST}, key=len, reverse=True)


def masker(secrets: Iterable[str]) -> Callable[[bytes], bytes]:
    """Return a function that masks the secrets in an encoded line."""
    forms = {json.dumps(s, ensure_ascii=e)[1:-1].encode() for s in secrets for e in (True, False)}
    if not forms:
        return lambda line: line
    pattern = re.compile(b"|".join(re.escape(f) for f in sorted(forms, key=len, reverse=True)))
    return lambda line: pattern.sub(_hidden, line)


def _hidden(found: re.Match[bytes]) -> bytes:
    """Return what stands for a secret; one of digits may be in a number, which must stay one."""
    return _DIGIT.sub(b"9", found[0]) if _NUMBER.fullmatch(found[0]) else MASK
