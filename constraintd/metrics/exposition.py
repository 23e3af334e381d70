"""From measurements to Prometheus' families: the one place where metrics have their names. See `docs/metrics.md`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from constraintd.grammar.compiler import Statistics as CompileStatistics
from constraintd.metrics import recording
from constraintd.metrics.histogram import Histogram, LabelledCount
from constraintd.metrics.recorder import Recorder
from constraintd.metrics.sources import OnLoop
from constraintd.session.table import Statistics as TableStatistics


class DaemonCollector(Collector):
    """Everything that a daemon exports, from what was recorded and from the daemon that is watched at that moment."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client. Called in the thread of a scrape."""
        yield from self._recorded()
        sources = recording.watched
        if sources is None:
            return
        on_loop = sources.read_loop()
        if on_loop is not None:
            yield from _streams(on_loop)
            yield from _compiling(on_loop.compiling, on_loop.compile_helper_starts)
        sessions = sources.read_sessions()
        if sessions is not None:
            yield from _sessions(sessions)

    def _recorded(self) -> Iterator[Metric]:
        of = self._recorder
        yield _histogram(
            "constraintd_step_seconds",
            "From the arrival of a Step on a Decode stream until its answer is ready, by lane.",
            of.step_seconds,
            "lane",
        )
        yield _histogram("constraintd_mask_seconds", "Computing one mask.", of.mask_seconds)
        yield _histogram("constraintd_advance_seconds", "Moving a constraint over one token.", of.advance_seconds)
        yield _histogram("constraintd_batch_steps", "Steps of one StepBatch.", of.batch_steps)
        wire = CounterMetricFamily(
            "constraintd_wire_bytes",
            "Bytes of StepBatches in and of StepAnswers out, as serialized messages.",
            labels=["direction"],
        )
        wire.add_metric(["in"], of.wire_bytes_in.value)
        wire.add_metric(["out"], of.wire_bytes_out.value)
        yield wire
        yield _histogram(
            "constraintd_store_append_seconds",
            "One append to the store: that of all steps of a batch, or of a call.",
            of.store_append_seconds,
            "backend",
        )
        yield _counter(
            "constraintd_store_errors",
            "Operations that the store could not do for the moment.",
            of.store_errors,
            ("backend", "operation"),
        )
        yield _histogram(
            "constraintd_compile_seconds",
            "What a caller waited for a grammar that was not in the cache, until it was compiled.",
            of.compile_seconds,
        )
        yield _counter(
            "constraintd_compile_refusals",
            "Refused grammars, by reason and by the limit that they ran into.",
            of.compile_refusals,
            ("reason", "limit"),
        )
        yield _histogram("constraintd_call_seconds", "One call, Decode aside.", of.call_seconds, "method")
        yield _counter(
            "constraintd_errors",
            "Calls, and Steps of Decode streams, that were refused or failed.",
            of.errors,
            ("method", "reason"),
        )


def _streams(now: OnLoop) -> Iterator[Metric]:
    yield GaugeMetricFamily("constraintd_streams", "Decode streams that are open.", now.streams)
    yield GaugeMetricFamily("constraintd_streams_limit", "Decode streams that may be open.", now.max_streams)


def _compiling(now: CompileStatistics, helper_starts: int) -> Iterator[Metric]:
    yield GaugeMetricFamily("constraintd_compiles_in_flight", "Compilations under way or waiting.", now.in_flight)
    yield CounterMetricFamily(
        "constraintd_compile_joined", "Callers that waited for somebody else's compilation.", now.joined
    )
    yield CounterMetricFamily(
        "constraintd_compile_helper_starts",
        "Starts of the process that tries grammars; after the first, each means that it died.",
        helper_starts,
    )
    yield CounterMetricFamily("constraintd_grammar_cache_hits", "Grammars found compiled.", now.hits)
    yield CounterMetricFamily("constraintd_grammar_cache_misses", "Compilations begun.", now.misses)
    yield CounterMetricFamily(
        "constraintd_grammar_cache_evictions", "Compiled grammars that made room.", now.cache.evicted
    )
    yield GaugeMetricFamily(
        "constraintd_grammar_cache_bytes", "What the compiled grammars take, by estimate.", now.cache.size
    )
    yield GaugeMetricFamily(
        "constraintd_grammar_cache_limit_bytes",
        "Past this, grammars that no session holds are evicted.",
        now.cache.limit,
    )
    grammars = GaugeMetricFamily(
        "constraintd_grammar_cache_grammars", "Compiled grammars, by whether a session holds them.", labels=["state"]
    )
    grammars.add_metric(["pinned"], now.cache.pinned)
    grammars.add_metric(["idle"], now.cache.entries - now.cache.pinned)
    yield grammars


def _sessions(now: TableStatistics) -> Iterator[Metric]:
    sessions = GaugeMetricFamily(
        "constraintd_sessions",
        "Sessions: hot in this daemon's memory, or passive in the store alone.",
        labels=["state"],
    )
    sessions.add_metric(["hot"], now.hot)
    # The store was counted a moment before or after the copies were.
    sessions.add_metric(["passive"], max(0, now.open - now.hot))
    yield sessions
    yield GaugeMetricFamily("constraintd_sessions_limit", "Sessions that may be open.", now.limit)
    yield CounterMetricFamily("constraintd_session_revivals", "Sessions folded from their logs.", now.revived)
    yield CounterMetricFamily(
        "constraintd_session_passivations", "Copies dropped from memory, to save it.", now.passivated
    )


def _histogram(
    name: str, about: str, histograms: Histogram | Mapping[str, Histogram], label: str | None = None
) -> Metric:
    family = HistogramMetricFamily(name, about, labels=None if label is None else [label])
    for value, histogram in {"": histograms}.items() if isinstance(histograms, Histogram) else histograms.items():
        now = histogram.snapshot()
        buckets = [(f"{bound:.12g}", count) for bound, count in now.buckets]
        family.add_metric([] if label is None else [value], [*buckets, ("+Inf", now.count)], now.sum)
    return family


def _counter(name: str, about: str, counts: LabelledCount, labels: Sequence[str]) -> Metric:
    family = CounterMetricFamily(name, about, labels=labels)
    for values, count in sorted(counts.snapshot().items()):
        family.add_metric(values, count)
    return family
