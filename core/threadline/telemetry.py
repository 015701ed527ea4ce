"""OpenTelemetry spans, when the ``otel`` extra is installed and configured; else nothing at all.

Spans are made for a route, an accepted delivery, a turn, a step, a tool call and an event handler.
They are recorded when the process has an SDK: one that the agent's code set up, or one that the
standard ``OTEL_*`` variables ask for.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["Span", "configure", "span", "start_span"]

_EXPORTERS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_EXPORTER")


class Span:
    """A running span; a span of nothing when tracing is off."""

    __slots__ = ("_span",)

    def __init__(self, inner: Any = None) -> None:
        self._span = inner

    def set(self, name: str, value: Any) -> None:
        """Set an attribute."""
        if self._span is not None and value is not None:
            self._span.set_attribute(name, value)

    def end(self, error: str | None = None) -> None:
        """End the span, as failed when an error is given."""
        if self._span is None:
            return
        if error is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()


_NOTHING = Span()


def _tracer() -> Any:
    """Return the tracer, or None while no SDK is loaded; costs one dictionary look-up then."""
    if "opentelemetry.sdk.trace" not in sys.modules:
        return None
    from opentelemetry import trace

    return trace.get_tracer("threadline")


def start_span(name: str, **attributes: Any) -> Span:
    """Start a span that is ended by hand; it is nobody's parent."""
    tracer = _tracer()
    if tracer is None:
        return _NOTHING
    known = {key: value for key, value in attributes.items() if value is not None}
    return Span(tracer.start_span(name, attributes=known))


@contextlib.contextmanager
def span(name: str, **attributes: Any) -> Iterator[Span]:
    """Run a block in a span; an exception marks it as failed."""
    tracer = _tracer()
    if tracer is None:
        yield _NOTHING
        return
    known = {key: value for key, value in attributes.items() if value is not None}
    with tracer.start_as_current_span(name, attributes=known) as inner:
        yield Span(inner)


def configure(service: str = "threadline") -> bool:
    """Set up the SDK when the environment asks for an exporter; returns whether it did.

    An SDK that somebody set up before is left alone.
    """
    if not any(os.environ.get(name) for name in _EXPORTERS):
        return False
    if importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is None:
        return False
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return False
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return True
