"""Spans, with an SDK and without one."""

from __future__ import annotations

import subprocess
import sys

from threadline.telemetry import span, start_span

SCRIPT = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

from threadline.telemetry import span, start_span

with span("outer", session="ses_1", nothing=None):
    with span("inner"):
        pass
    step = start_span("step", number=1)
    step.set("usage", 3)
    step.end(error="boom")
for item in exporter.get_finished_spans():
    print(item.name, item.parent is not None, dict(item.attributes), item.status.is_ok)
"""


def test_without_an_sdk_a_span_is_nothing() -> None:
    """Code that is traced runs the same when nobody traces."""
    with span("outer", session="ses_1") as outer:
        outer.set("key", "value")
    start_span("step").end(error="boom")


def test_with_an_sdk_spans_nest_and_carry_attributes() -> None:
    """An SDK that the process set up gets the spans."""
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [
        "inner True {} True",
        "step True {'number': 1, 'usage': 3} False",
        "outer False {'session': 'ses_1'} True",
    ]
