from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from threadline import tool


class Found(BaseModel):
    """What was found."""

    item: str
    count: int
    kind: Literal["part", "whole"] = "part"


@tool(effect="read")
async def lookup(
    item: str, count: int = Field(default=1, ge=0, le=100), since: datetime | None = None
) -> list[Found]:
    """Look an item up."""
    return [Found(item=item, count=count)]
