"""Benchmark `throttled`: a daemon and its helper held to half of a core, against all of it.

One daemon on SQLite on a core of its own, through gRPC and without a model; the clients are on another core. Two of
them have 32 sessions each under one schema and send a Step of each a batch, so that there is always something to do.
The daemon has one core and half of it in turn; each pair of neighbours, on sessions of its own, gives one ratio.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from constraintd_client import SessionHandle

from benchmarks.form import Progress, Result
from benchmarks.half_core import WAYS, HalfCore, half_core
from benchmarks.sessions_load import BATCH, Load
from benchmarks.sessions_text import Walk

NAME = "throttled"
SUMMARY = "steps a second of a daemon held to half of a core, against one core"
_WARM_UP = 1  # pairs
_CLIENTS = 2


def add_options(parser: argparse.ArgumentParser) -> None:
    """How much is measured, and how the daemon is held."""
    parser.add_argument("--pairs", type=int, default=25, metavar="N", help="of one core and half [%(default)s]")
    parser.add_argument("--batches", type=int, default=50, metavar="N", help="a client, on each side [%(default)s]")
    parser.add_argument(
        "--way", choices=WAYS, default="auto", help="auto: a quota where there are cgroups [%(default)s]"
    )


def run(progress: Progress, *, pairs: int, batches: int, way: str) -> Result:
    """`half_core_ratio`: steps a second at half of a core over those at one; the median over pairs.

    `step_p99_ms_half`, `step_p99_ms_one`: from a batch's sending until a session's answer was taken; a quota of 50 ms
    in 100 lets some wait for 50 ms. `cpu_share_half`, `cpu_share_one`: of a core, as the daemon used it. `by_quota`: 1
    where a cgroup held it, 0 for a busy loop beside it. Raises RuntimeError on a machine with one core.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise RuntimeError("one core alone: the clients would take the daemon's; this takes two")
    rates: dict[bool, list[float]] = {True: [], False: []}
    waits: dict[bool, list[float]] = {True: [], False: []}
    shares: dict[bool, list[float]] = {True: [], False: []}
    walk = Walk(2 * batches)
    os.sched_setaffinity(0, set(cores[1:]))
    try:
        with half_core(cores[0], way) as held, _daemon(held) as (address, pid), ThreadPoolExecutor(_CLIENTS) as threads:
            loads = [Load(address, walk) for _ in range(_CLIENTS)]
            for number in range(_WARM_UP + pairs):
                progress("pairs", number, _WARM_UP + pairs)
                opened = [load.open(BATCH) for load in loads]
                for half in (False, True) if number % 2 else (True, False):  # what drifts hits both alike
                    held.hold(half=half)
                    used, began = _cpu_us(pid), time.perf_counter()
                    taken = list(threads.map(_batches, loads, opened, [batches] * _CLIENTS))
                    took = time.perf_counter() - began
                    if number < _WARM_UP:
                        continue
                    waits[half] += [us for each in taken for us in each]
                    rates[half].append(_CLIENTS * batches * BATCH / took)
                    shares[half].append((_cpu_us(pid) - used) / took / 1e6)
            held.hold(half=False)
            for load in loads:
                load.close()
            by_quota = float(held.name != "busy loop")
    finally:
        os.sched_setaffinity(0, set(cores))
    progress("pairs", _WARM_UP + pairs, _WARM_UP + pairs)
    ratios = [half / one for half, one in zip(rates[True], rates[False], strict=True)]
    figures = {
        "half_core_ratio": statistics.median(ratios),
        "step_p99_ms_half": _p99(waits[True]) / 1e3,
        "step_p99_ms_one": _p99(waits[False]) / 1e3,
        "cpu_share_half": statistics.median(shares[True]),
        "cpu_share_one": statistics.median(shares[False]),
        "by_quota": by_quota,
    }
    samples = {"half_core_ratio": ratios, "steps_per_s_half": rates[True], "steps_per_s_one": rates[False]}
    return Result(figures, samples)


def _batches(load: Load, sessions: Sequence[SessionHandle], count: int) -> list[float]:
    return [us for _ in range(count) for us in load.step(sessions)]


def _p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100)[-1]


def _cpu_us(pid: int) -> float:
    """Microseconds of CPU that the living threads of a process have used."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e3


@contextmanager
def _daemon(held: HalfCore) -> Iterator[tuple[str, int]]:
    """`constraintd serve` where it is held; its address and process. Raises RuntimeError if it doesn't start."""
    folder = tempfile.mkdtemp(prefix="constraintd-")
    address = f"unix:{folder}/daemon.sock"
    serve = [sys.executable, "-m", "constraintd.cli", "serve", "--listen", address, "--log-level", "error"]
    command = held.command([*serve, "--store", f"sqlite:{folder}/sessions"])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if not process.stdout.readline().startswith("listening on"):
            raise RuntimeError("the daemon did not start; run `constraintd serve` to see why")
        yield address, process.pid  # taskset and sh have become it
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
        shutil.rmtree(folder, ignore_errors=True)
