"""Structured logs: to stderr, and the newest of them in memory for ``/v1/logs``."""

from __future__ import annotations

import json
import logging
import sys
from collections import deque
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog

from threadline import ndjson

__all__ = ["LogBook", "configure"]

KEPT = 2000
_CHATTY = ("httpx", "httpx2")  # a line for each call


class LogBook:
    """The newest log records, numbered from 1; ``mask`` takes secrets out of an encoded one."""

    def __init__(self, kept: int = KEPT) -> None:
        self.mask: Callable[[bytes], bytes] = lambda line: line
        self._records: deque[dict[str, Any]] = deque(maxlen=kept)
        self._next = 1

    def __call__(self, _: Any, __: str, event: MutableMapping[str, Any]) -> Any:
        """Keep a record; a structlog processor, so whatever it holds must not raise."""
        shown = {key: value for key, value in event.items() if key != "exc_info"}
        line = self.mask(ndjson.encode(shown))
        self._records.append({"n": self._next, **json.loads(line)})
        self._next += 1
        return event

    def after(
        self, number: int, visible: Callable[[dict[str, Any]], bool]
    ) -> tuple[list[dict[str, Any]], int]:
        """Return the visible records behind a number, and the cursor to poll with next."""
        found = [r for r in list(self._records) if r["n"] > number and visible(r)]
        return found, self._next - 1


def configure(book: LogBook, *, level: str = "info", json_lines: bool | None = None) -> None:
    """Send structlog's and the standard library's records through the book to stderr.

    ``json_lines`` is the default where stderr is not a terminal.
    """
    as_json = not sys.stderr.isatty() if json_lines is None else json_lines
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        book,
    ]
    renderer: list[Any] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
        if as_json
        else [structlog.dev.ConsoleRenderer()]
    )
    threshold = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    for chatty in _CHATTY:
        logging.getLogger(chatty).setLevel(logging.WARNING)
    root = logging.getLogger()
    root.handlers = [_Bridge()]
    root.setLevel(max(threshold, logging.INFO))


class _Bridge(logging.Handler):
    """Hands the standard library's records to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one record on."""
        log = structlog.get_logger(record.name)
        fields: dict[str, Any] = {"logger": record.name}
        if record.exc_info:
            fields["exc_info"] = record.exc_info
        method = getattr(log, record.levelname.lower(), log.info)
        method(record.getMessage(), **fields)
