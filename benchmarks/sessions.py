"""What sessions cost that outlive their daemon: bringing them back, holding many, keeping each step in a store.

Each part says in its own file what it measures and how: `sessions_revival`, `sessions_many`, `sessions_store`.
"""

from __future__ import annotations

import argparse

from benchmarks.form import Progress, Result
from benchmarks.sessions_many import measure_many, measure_restart
from benchmarks.sessions_revival import measure_revival
from benchmarks.sessions_store import measure_stores, measure_stores_with_model

NAME = "sessions"
SUMMARY = "reviving sessions, holding 100,000, and what each store costs a step"

PARTS = ("revival", "restart", "many", "store", "model")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What to run, and how much."""
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="[%(default)s]")
    parser.add_argument("--rounds", type=int, default=15, help="of revival, store and model [%(default)s]")
    parser.add_argument("--short-sessions", type=int, default=10_000, help="to restart with [%(default)s]")
    parser.add_argument("--open-sessions", type=int, default=100_000, help="to hold [%(default)s]")
    parser.add_argument("--active-sessions", type=int, default=1_000, help="of these [%(default)s]")
    parser.add_argument("--active-rounds", type=int, default=20, help="of steps of the active ones [%(default)s]")
    parser.add_argument("--batches", type=int, default=60, help="of 32 steps, a store's turn [%(default)s]")


def run(
    progress: Progress,
    *,
    parts: list[str] | None = None,
    rounds: int = 15,
    short_sessions: int = 10_000,
    open_sessions: int = 100_000,
    active_sessions: int = 1_000,
    active_rounds: int = 20,
    batches: int = 60,
) -> Result:
    """The parts one after the other; figures are named where they are measured."""
    measures = {
        "revival": lambda: measure_revival(progress, rounds),
        "restart": lambda: measure_restart(progress, short_sessions),
        "many": lambda: measure_many(progress, open_sessions, active_sessions, active_rounds),
        "store": lambda: measure_stores(progress, rounds, batches),
        "model": lambda: measure_stores_with_model(progress, rounds),
    }
    figures: dict[str, float] = {}
    samples: dict[str, list[float]] = {}
    for part in parts or PARTS:
        measured, taken = measures[part]()
        figures |= measured
        samples |= taken
    return Result(figures, samples)
