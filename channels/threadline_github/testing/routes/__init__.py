"""The endpoints, by area."""

from __future__ import annotations

from threadline_github.testing.routes import (
    apps,
    checks,
    deliveries,
    issues,
    pulls,
    repositories,
    reviews,
)
from threadline_github.testing.table import Endpoint

__all__ = ["ENDPOINTS"]

ENDPOINTS: list[Endpoint] = [
    value
    for module in (apps, repositories, issues, pulls, reviews, checks, deliveries)
    for value in vars(module).values()
    if isinstance(value, Endpoint)
]
