"""Benchmark `metrics`: what measuring itself costs a daemon in steps a second and CPU, and how long a scrape takes.

One daemon on the memory store, through gRPC and without a model: 32 sessions under one schema, a Step of each a batch.
Its recording is off and on in turn, for a few batches at a time; each pair of neighbours gives one ratio.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import time
import urllib.request

from benchmarks.form import Progress, Result
from benchmarks.metrics_daemon import SwitchedDaemon
from benchmarks.sessions_load import BATCH, Load
from benchmarks.sessions_text import Walk

NAME = "metrics"
SUMMARY = "what measuring itself costs a daemon"
_WARM_UP = 50  # batches


def add_options(parser: argparse.ArgumentParser) -> None:
    """How much is measured."""
    parser.add_argument("--pairs", type=int, default=200, metavar="N", help="of off and on [%(default)s]")
    parser.add_argument("--batches", type=int, default=6, metavar="N", help="on each side of a pair [%(default)s]")


def run(progress: Progress, *, pairs: int, batches: int) -> Result:
    """`metrics_cost`: steps a second while nothing is recorded over those while it is, minus 1; the median over pairs.

    `metrics_cpu_cost`: the same in CPU time of the daemon, which knows nothing of what else runs on the machine.
    `scrape_ms`: one page, over HTTP.
    """
    metrics = _free_address()
    walk = Walk(_WARM_UP + 2 * pairs * batches)
    wall: dict[bool, list[float]] = {True: [], False: []}
    cpu: dict[bool, list[float]] = {True: [], False: []}
    with SwitchedDaemon(metrics) as daemon:
        load = Load(daemon.address, walk)
        opened = load.open(BATCH)
        for _ in range(_WARM_UP):
            load.step(opened)
        recording = True
        for number in range(pairs):
            progress("pairs", number, pairs)
            for side in range(2):  # on off, off on, on off, ...: what drifts hits both alike
                began, used = time.perf_counter(), daemon.cpu_us()
                for _ in range(batches):
                    load.step(opened)
                wall[recording].append((time.perf_counter() - began) / batches / BATCH * 1e6)
                cpu[recording].append((daemon.cpu_us() - used) / batches / BATCH)
                if not side:
                    daemon.switch()
                    recording = not recording
        if not recording:
            daemon.switch()
        scrapes = [_scrape_ms(metrics) for _ in range(20)]
        load.close()
    progress("pairs", pairs, pairs)
    figures = {
        "metrics_cost": _cost(wall),
        "metrics_cpu_cost": _cost(cpu),
        "scrape_ms": statistics.median(scrapes),
    }
    samples = {
        "step_us_off": wall[False],
        "step_us_on": wall[True],
        "cpu_us_off": cpu[False],
        "cpu_us_on": cpu[True],
        "scrape_ms": scrapes,
    }
    return Result(figures, samples)


def _cost(us: dict[bool, list[float]]) -> float:
    return statistics.median(on / off for on, off in zip(us[True], us[False], strict=True)) - 1


def _scrape_ms(address: str) -> float:
    began = time.perf_counter()
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        answer.read()
    return (time.perf_counter() - began) * 1e3


def _free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"
