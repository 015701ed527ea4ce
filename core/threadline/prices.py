"""What model requests cost, by a maintained list of prices (genai-prices).

The list comes with the ``pydantic-ai`` extra. Without it, and for a model that it does not have,
the cost is unknown: None, never zero.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

__all__ = ["price"]


@functools.cache
def _prices() -> Any:
    try:
        import genai_prices
    except ModuleNotFoundError:
        return None
    return genai_prices


def price(model: str | None, usage: Mapping[str, int]) -> float | None:
    """Return the estimated price in US dollars of a request, or None when it is not known.

    ``model`` is a name such as ``"claude-sonnet-4-5"``, or with its provider
    ``"anthropic:claude-sonnet-4-5"``; ``usage`` has the keys of the ``usage`` of events.
    """
    prices = _prices() if model else None
    if prices is None or not model:
        return None
    provider, _, name = model.rpartition(":")
    counts = prices.Usage(
        input_tokens=usage.get("inputTokens", 0),
        output_tokens=usage.get("outputTokens", 0),
        cache_read_tokens=usage.get("cacheReadTokens", 0),
        cache_write_tokens=usage.get("cacheWriteTokens", 0),
    )
    try:
        return float(prices.calc_price(counts, name, provider_id=provider or None).total_price)
    except (LookupError, ValueError):
        return None
