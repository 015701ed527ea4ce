"""The pytest plugin that comes with threadline; it adds nothing by itself."""

from __future__ import annotations

__all__: list[str] = []
