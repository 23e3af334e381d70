"""Serves the daemon's metrics over HTTP, for Prometheus to scrape."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, ProcessCollector

from constraintd.metrics import recording
from constraintd.metrics.exposition import DaemonCollector
from constraintd.metrics.recorder import Recorder
from constraintd.serving.metrics_listener import CannotServeMetrics, MetricsServer, listen


def serve_metrics(address: str) -> MetricsServer:
    """Begins to measure, and serves what was measured, until it is closed. Raises CannotServeMetrics; see `listen`."""
    if recording.active is not None:
        raise CannotServeMetrics("this process serves its metrics already; one address is enough")
    recorder = Recorder()
    registry = CollectorRegistry()
    registry.register(DaemonCollector(recorder))
    ProcessCollector(registry=registry)
    server = listen(address, registry, _measure_nothing)
    recording.active = recorder
    return server


def _measure_nothing() -> None:
    recording.active = None
