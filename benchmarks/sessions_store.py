"""Benchmark `sessions`: what a store costs a daemon, in steps a second, against keeping sessions in memory alone.

Each store has a daemon of its own; all are there at once, and take turns within every round.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from constraintd_client import ConstraintClient, VocabularyInfo
from constraintd_runner.directives import DaemonDirectives
from constraintd_runner.model.decoder import Decoder
from constraintd_runner.model.folder import ModelFolder
from tokenizers import Tokenizer

from benchmarks.form import Progress
from benchmarks.loop import PROMPT, Constrained, running
from benchmarks.sessions_daemon import ServedDaemon, disk_sync_us, redis_url
from benchmarks.sessions_load import BATCH, Load
from benchmarks.sessions_text import Walk
from constraintd.serving.cpu_budget import cpu_budget

_MODEL_TOKENS = 120


def measure_stores(progress: Progress, rounds: int, batches: int) -> tuple[dict[str, float], dict[str, list[float]]]:
    """`sqlite_cost`, `sqlite_strict_cost`, `redis_cost`: steps a second on memory over those on the store, minus 1.

    Through gRPC, without a model: 32 sessions under one schema, a Step of each a batch, the next batch when all answers
    were taken. Medians over rounds of `batches` batches. `disk_sync_us`: one fdatasync of 4 KiB on the file's disk.
    """
    walk = Walk(rounds * batches + batches)
    rates: dict[str, list[float]] = {}
    with _stores() as (folder, daemons):
        loads = {name: Load(daemon.address, walk) for name, daemon in daemons.items()}
        opened = {name: load.open(BATCH) for name, load in loads.items()}
        for number in range(rounds + 1):
            progress("rounds of steps on each store", number, rounds + 1)
            for name in _turns(loads, number):
                took = sum(loads[name].step(opened[name])[-1] for _ in range(batches))
                if number:  # the first is for warming up
                    rates.setdefault(name, []).append(batches * BATCH / took * 1e6)
        for load in loads.values():
            load.close()
        sync_us = disk_sync_us(folder)
    progress("rounds of steps on each store", rounds + 1, rounds + 1)
    figures = {f"{name}_cost": _cost(rates, name) for name in rates if name != "memory"}
    figures["disk_sync_us"] = statistics.median(sync_us)
    return figures, {f"{name}_per_s": values for name, values in rates.items()} | {"disk_sync_us": sync_us}


def measure_stores_with_model(progress: Progress, rounds: int) -> tuple[dict[str, float], dict[str, list[float]]]:
    """`sqlite_model_cost`, `redis_model_cost`: the same in tokens a second of the demo model, one session at a time."""
    folder = Walk(1).folder
    model = ModelFolder.open(folder)
    prompt = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(PROMPT).ids
    rates: dict[str, list[float]] = {}
    with ExitStack() as stack:
        _, daemons = stack.enter_context(_stores())
        loops: dict[str, Constrained] = {}
        for name, daemon in daemons.items():
            decoder = Decoder.open(model, threads=cpu_budget(), slots=1, max_length=512)
            client = stack.enter_context(ConstraintClient(daemon.address))
            source = DaemonDirectives(client, lambda client=client, decoder=decoder: _register(client, folder, decoder))
            stack.callback(source.close)
            loops[name] = Constrained(stack.enter_context(running(decoder, source)), source, prompt)
        for number in range(rounds + 1):
            progress("rounds of generations on each store", number, rounds + 1)
            for name in _turns(loops, number):
                took = loops[name].run(_MODEL_TOKENS)[1]
                if number:
                    rates.setdefault(name, []).append((_MODEL_TOKENS - 1) / took.decode_us * 1e6)
    progress("rounds of generations on each store", rounds + 1, rounds + 1)
    figures = {f"{name}_model_cost": _cost(rates, name) for name in rates if name != "memory"}
    return figures, {f"{name}_model_per_s": values for name, values in rates.items()}


@contextmanager
def _stores() -> Iterator[tuple[Path, dict[str, ServedDaemon]]]:
    """A folder, and a daemon on each store by its name; redis only where a server is installed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="constraintd-")))
        named = {
            "memory": ("memory",),
            "sqlite": (f"sqlite:{folder}/relaxed.sqlite",),
            "sqlite_strict": (f"sqlite:{folder}/strict.sqlite", "--durability", "strict"),
        }
        url = stack.enter_context(redis_url())
        if url is not None:
            named["redis"] = (url,)
        yield folder, {name: stack.enter_context(ServedDaemon(folder, *each)) for name, each in named.items()}


def _register(client: ConstraintClient, folder: Path, decoder: Decoder) -> VocabularyInfo:
    return client.register_vocabulary(
        "tokenizer_json",
        folder / "tokenizer.json",
        logits_width=decoder.logits_width,
        generation_config=folder / "generation_config.json",
    )


def _turns(named: Mapping[str, object], number: int) -> Sequence[str]:
    """Who comes when: forward and backward in turn, so that what drifts hits all alike."""
    return list(named) if number % 2 else list(reversed(named))


def _cost(rates: Mapping[str, Sequence[float]], name: str) -> float:
    return statistics.median(memory / store for memory, store in zip(rates["memory"], rates[name], strict=True)) - 1
