"""The HTTP channel: sessions over JSON and NDJSON."""

from threadline_http.channel import HttpChannel

__all__ = ["HttpChannel"]
