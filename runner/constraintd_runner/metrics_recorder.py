"""All that the runner measures, with the names under which Prometheus has it. See `docs/metrics.md`.

A forward pass takes milliseconds, so prometheus_client's own 0.7 us for an observation don't count here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from constraintd_client import Directive
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from constraintd.runner.v1 import generation_service_pb2
from constraintd.v1 import error_pb2, session_pb2
from constraintd_runner import metrics_recording
from constraintd_runner.errors import Abandoned, CallStatus
from constraintd_runner.metrics_recording import Recording

METHODS: Final = tuple(
    method.name for method in generation_service_pb2.DESCRIPTOR.services_by_name["GenerationService"].methods
)
REASONS: Final = (
    *(name.removeprefix("ERROR_REASON_") for name, number in error_pb2.ErrorReason.items() if number),
    # Where no reason applies: the runner stops, the caller went away.
    "UNAVAILABLE",
    "CANCELLED",
)
FINISHES: Final = tuple(
    name.removeprefix("FINISH_REASON_") for name, number in session_pb2.FinishReason.items() if number
)
OTHER: Final = "other"
"""Stands for a label value that is not among those above, so that nobody can make a series."""

# Seconds. An answer that is there already takes 10 us to pick up; one that has to be waited for 1 ms or an outage.
_WAITING: Final = (
    1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.5, 1.0, 5.0, 30.0,
)  # fmt: skip
_SAMPLING: Final = (2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1)
_FORWARD: Final = (5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2e-2, 4e-2, 8e-2, 0.16, 0.32, 0.64, 1.25, 2.5, 5.0, 10.0, 30.0)
_SEQUENCES: Final = (1, 2, 4, 8, 16, 32, 64, 128)


class RunnerRecorder(Recording):
    """Counts it for the metrics in a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._tokens = Counter("constraintd_runner_tokens", "Tokens that the daemon accepted.", registry=registry)
        self._prompt_tokens = Counter("constraintd_runner_prompt_tokens", "Tokens prefilled.", registry=registry)
        forward_seconds = Histogram(
            "constraintd_runner_forward_seconds",
            "One forward pass of a batch (decode), or all that put one prompt in (prefill).",
            ["phase"],
            buckets=_FORWARD,
            registry=registry,
        )
        self._batch_sequences = Histogram(
            "constraintd_runner_batch_sequences",
            "Sequences of one decoding forward pass.",
            buckets=_SEQUENCES,
            registry=registry,
        )
        self._mask_wait_seconds = Histogram(
            "constraintd_runner_mask_wait_seconds",
            "How long the loop stood still for one answer of the daemon with nothing else to do.",
            buckets=_WAITING,
            registry=registry,
        )
        self._sampling_seconds = Histogram(
            "constraintd_runner_sampling_seconds",
            "Picking one token from its row of logits, the mask applied.",
            buckets=_SAMPLING,
            registry=registry,
        )
        self._generations = Counter(
            "constraintd_runner_generations",
            "Generations that the loop ran to their end: by finish reason, FAILED, or CANCELLED by their callers.",
            ["finish"],
            registry=registry,
        )
        self._resumes = Counter(
            "constraintd_runner_resumes", "Generations taken up from a session of the daemon.", registry=registry
        )
        self._reconnects = Counter(
            "constraintd_runner_reconnects",
            "Attempts at a new Decode stream after a break, by whether one was opened.",
            ["outcome"],
            registry=registry,
        )
        self._errors = Counter(
            "constraintd_runner_errors", "Calls that failed or were refused.", ["method", "reason"], registry=registry
        )
        self._prefill_seconds = forward_seconds.labels("prefill")
        self._decode_seconds = forward_seconds.labels("decode")
        # From the first scrape on, so that the first one of each shows as a rate.
        for outcome in ("opened", "failed"):
            self._reconnects.labels(outcome)
        for finish in (*FINISHES, "FAILED", "CANCELLED"):
            self._generations.labels(finish)
        registry.register(_LoopCollector())

    def prefilled(self, tokens: int, seconds: float) -> None:
        """See Recording."""
        self._prompt_tokens.inc(tokens)
        self._prefill_seconds.observe(seconds)

    def fed(self, sequences: int, seconds: float) -> None:
        """See Recording."""
        self._decode_seconds.observe(seconds)
        self._batch_sequences.observe(sequences)

    def picked(self, seconds: float) -> None:
        """See Recording."""
        self._sampling_seconds.observe(seconds)

    def answered(self, directive: Directive, waited: float) -> None:
        """See Recording."""
        self._tokens.inc()
        self._mask_wait_seconds.observe(waited)
        if directive.finish is not None:
            reason = directive.finish.reason
            self._generations.labels(reason if reason in FINISHES else OTHER).inc()

    def failed(self, error: Exception) -> None:
        """See Recording."""
        self._generations.labels("CANCELLED" if isinstance(error, Abandoned) else "FAILED").inc()

    def resumed(self) -> None:
        """See Recording."""
        self._resumes.inc()

    def reconnected(self, *, opened: bool) -> None:
        """See Recording."""
        self._reconnects.labels("opened" if opened else "failed").inc()

    def refused(self, method: str, status: CallStatus) -> None:
        """See Recording."""
        reason = status.reason or status.code.name
        self._errors.labels(method if method in METHODS else OTHER, reason if reason in REASONS else OTHER).inc()


class _LoopCollector(Collector):
    """How full the decode loop is when a scrape comes."""

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        if metrics_recording.loop is None:
            return
        now = metrics_recording.loop()
        yield GaugeMetricFamily("constraintd_runner_slots", "Generations that can run at once.", now.slots)
        yield GaugeMetricFamily("constraintd_runner_slots_used", "Generations that have a slot.", now.used)
        yield GaugeMetricFamily("constraintd_runner_queue", "Generations that wait for a slot.", now.waiting)
