"""Prometheus metrics, collected when they are scraped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from threadline.session.core import SessionCore
from threadline.version import VERSION

__all__ = ["render"]


def render(cores: Mapping[str, SessionCore]) -> tuple[bytes, str]:
    """Return the exposition of all agents, and its content type."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

    registry = CollectorRegistry()
    registry.register(_Collector(cores))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Collector:
    def __init__(self, cores: Mapping[str, SessionCore]) -> None:
        self._cores = cores

    def collect(self) -> Iterable[Any]:
        """Yield the families."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        build = GaugeMetricFamily("threadline_build", "Version of the host.", labels=["version"])
        build.add_metric([VERSION], 1)
        yield build
        gauges = {
            "sessions": GaugeMetricFamily(
                "threadline_open_sessions", "Sessions in memory.", labels=["agent"]
            ),
            "running": GaugeMetricFamily(
                "threadline_running_turns", "Turns that run.", labels=["agent"]
            ),
            "queued": GaugeMetricFamily(
                "threadline_queued_turns", "Turns that wait for a slot.", labels=["agent"]
            ),
        }
        counters = {
            "deliveries": CounterMetricFamily(
                "threadline_deliveries", "Deliveries by answer.", labels=["agent", "answer"]
            ),
            "turns": CounterMetricFamily(
                "threadline_turns", "Turns by how they ended.", labels=["agent", "status"]
            ),
            "events": CounterMetricFamily(
                "threadline_events", "Events recorded.", labels=["agent", "how"]
            ),
        }
        for slug, core in self._cores.items():
            for name, value in core.load.items():
                gauges[name].add_metric([slug], value)
            for (family, label), count in core.services.counts.items():
                counters[family].add_metric([slug, label], count)
        yield from gauges.values()
        yield from counters.values()
