"""Words that stop what runs; no I/O."""

from __future__ import annotations

import re

from threadline_github.inbound.prose import prose

__all__ = ["asks_to_stop"]

_WORDS = re.compile(r"[\s@/]*(?:stop|cancel|abort)(?:\s+(?:it|this|that|please|now))*[\s.!]*", re.I)


def asks_to_stop(markdown: str, login: str | None) -> bool:
    """Tell whether a comment says to stop, and nothing else, beside the agent's name."""
    name = re.escape((login or "").removesuffix("[bot]"))
    said = "\n".join(prose(markdown))
    if name:
        said = re.sub(rf"@{name}(?:\[bot\])?[,:]?", " ", said, flags=re.IGNORECASE)
    return _WORDS.fullmatch(said) is not None
