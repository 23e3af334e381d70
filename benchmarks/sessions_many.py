"""Benchmark `sessions`: a restart with many short sessions, and a daemon that holds far more than are active."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.form import Progress
from benchmarks.sessions_daemon import ServedDaemon
from benchmarks.sessions_load import BATCH, Load
from benchmarks.sessions_text import Walk

_SHORT = 5  # tokens
_GIB = 1 << 30
_SETTLED_SECONDS = 75.0  # a session that was not stepped for 60 s is dropped from memory, at the next sweep


def measure_restart(progress: Progress, sessions: int) -> tuple[dict[str, float], dict[str, list[float]]]:
    """`revive_per_s`: short sessions a second that a restarted daemon steps once each, in batches of 32.

    Prompts of 20 tokens, 5 tokens each, one schema. A runner has registered the vocabulary anew, and that is all: the
    first batch, which waits for the grammar, counts. `revive_per_cpu_s`: in a second of the daemon's CPU time.
    """
    walk = Walk(_SHORT + 1)
    per_s: list[float] = []
    batch_us: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="constraintd-") as folder,
        ServedDaemon(Path(folder), f"sqlite:{folder}/sessions.sqlite") as daemon,
    ):
        load = Load(daemon.address, walk)
        opened = load.open(sessions, lambda n: progress("sessions opened", n, sessions))
        for number in range(_SHORT):
            progress("steps of each", number, _SHORT)
            load.step_all(opened)
        load.close()
        daemon.end()
        daemon.start()
        load = Load(daemon.address, walk)
        cpu = daemon.cpu_seconds()
        began = time.perf_counter()
        for at in range(0, len(opened), BATCH):
            progress("revivals", at, sessions)
            begun = time.perf_counter()
            load.step(opened[at : at + BATCH])
            took = time.perf_counter() - begun
            batch_us.append(took * 1e6)
            per_s.append(len(opened[at : at + BATCH]) / took)
        took = time.perf_counter() - began
        cpu = daemon.cpu_seconds() - cpu
        load.close()
    progress("revivals", sessions, sessions)
    figures = {"revive_per_s": sessions / took, "revive_per_cpu_s": sessions / cpu}
    return figures, {"revived_per_s": per_s}


def measure_many(
    progress: Progress, sessions: int, active: int, rounds: int
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """`rss_gib_100k` with `sessions` open at one daemon on sqlite; `p99_ratio`: its active ones' step p99 over that of
    a daemon that holds those alone, the median of the rounds.

    A round steps all active sessions once at each daemon, in batches of 32; a step's time ends when its answer is
    taken. The sessions that are not active were opened, and have been left alone until the daemon dropped them from
    memory.
    """
    walk = Walk(rounds + 64)
    ratios: list[float] = []
    full_p99: list[float] = []
    lone_p99: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="constraintd-") as folder,
        ServedDaemon(Path(folder), f"sqlite:{folder}/full.sqlite", "--session-idle-seconds", "7200") as full,
        ServedDaemon(Path(folder), f"sqlite:{folder}/lone.sqlite", "--session-idle-seconds", "7200") as lone,
    ):
        many, few = Load(full.address, walk), Load(lone.address, walk)
        began = time.perf_counter()
        many.open(sessions - active, lambda n: progress("sessions opened", n, sessions))
        opened_per_s = (sessions - active) / (time.perf_counter() - began)
        theirs, mine = many.open(active), few.open(active)
        settled = time.monotonic() + _SETTLED_SECONDS
        while time.monotonic() < settled:
            progress("until those that are not active lie in the store alone", sessions, sessions + 1)
            many.step_all(theirs), few.step_all(mine)
            time.sleep(5.0)
        for number in range(rounds):
            progress("rounds of steps", number, rounds)
            pair = {}
            for side in ("full", "lone") if number % 2 else ("lone", "full"):
                took = many.step_all(theirs) if side == "full" else few.step_all(mine)
                pair[side] = float(np.percentile(took, 99))
            full_p99.append(pair["full"])
            lone_p99.append(pair["lone"])
            ratios.append(pair["full"] / pair["lone"])
        rss, lone_rss = full.rss_bytes(), lone.rss_bytes()
        many.close(), few.close()
    progress("rounds of steps", rounds, rounds)
    figures = {
        "rss_gib_100k": rss / _GIB,
        "rss_gib_active": lone_rss / _GIB,
        "p99_ratio": statistics.median(ratios),
        "opened_per_s": opened_per_s,
    }
    return figures, {"p99_ratio": ratios, "full_p99_us": full_p99, "lone_p99_us": lone_p99}
