"""Serves the runner's metrics over HTTP, for Prometheus to scrape."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics

from constraintd.serving.metrics_listener import CannotServeMetrics, MetricsServer, listen
from constraintd_runner import metrics_recording
from constraintd_runner.metrics_recorder import RunnerRecorder


def serve_metrics(address: str) -> MetricsServer:
    """Begins to measure, and serves what was measured, until it is closed. Raises CannotServeMetrics; see `listen`."""
    if isinstance(metrics_recording.active, RunnerRecorder):
        raise CannotServeMetrics("this process serves its metrics already; one address is enough")
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, which nothing here asks for
    registry = CollectorRegistry()
    recorder = RunnerRecorder(registry)
    ProcessCollector(registry=registry)
    server = listen(address, registry, _measure_nothing)
    metrics_recording.active = recorder
    return server


def _measure_nothing() -> None:
    metrics_recording.active = metrics_recording.Recording()
