"""What the split costs: the same tokens through the runner's loop with a daemon's masks, and without daemon or mask."""

from __future__ import annotations

import argparse
import statistics

import numpy as np
from constraintd_runner.model.fetch import fetch_smollm2

from benchmarks.form import Progress, Result
from benchmarks.loop import both
from constraintd.serving.cpu_budget import cpu_budget

NAME = "split-overhead"
SUMMARY = "tokens/s kept when the masks come from a separate daemon, and how long the loop waits for them"


def add_options(parser: argparse.ArgumentParser) -> None:
    """How much to run."""
    parser.add_argument("--pairs", type=int, default=15, help="alternating pairs of runs [%(default)s]")
    parser.add_argument("--tokens", type=int, default=200, help="tokens a run [%(default)s]")
    parser.add_argument("--threads", type=int, default=cpu_budget(), help="of ONNX Runtime [%(default)s]")


def run(progress: Progress, *, pairs: int = 15, tokens: int = 200, threads: int | None = None) -> Result:
    """`kept_b1`: decode time without the split over that with it, the median of the pairs (1 = no loss).

    `wait_us_p50`, `wait_us_p99`: how long the loop stood still for a mask, over all tokens.
    """
    kept: list[float] = []
    waits: list[float] = []
    split: list[float] = []
    plain: list[float] = []
    wire: list[float] = []
    with both(fetch_smollm2(), threads=threads or cpu_budget(), length=1024) as (unconstrained, constrained):
        replay, _ = constrained.run(tokens)
        unconstrained.run(tokens, replay)
        for pair in range(pairs):
            progress("pairs of runs", pair, pairs)
            for side in ("split", "plain") if pair % 2 else ("plain", "split"):
                if side == "plain":
                    plain.append(unconstrained.run(tokens, replay).decode_us)
                else:
                    chosen, took = constrained.run(tokens)
                    if chosen != replay:
                        raise RuntimeError("greedy under the same grammar gave other tokens than the run before")
                    split.append(took.decode_us)
                    waits.extend(took.mask_waits_us)
                    wire.append(took.wire_bytes / tokens)
            kept.append(plain[-1] / split[-1])
    progress("done", pairs, pairs)
    return Result(
        {
            "kept_b1": statistics.median(kept),
            "wait_us_p50": float(np.percentile(waits, 50)),
            "wait_us_p99": float(np.percentile(waits, 99)),
            "wire_bytes_per_step": statistics.median(wire),
        },
        {
            "kept_b1": kept,
            "plain_tokens_per_s": [(tokens - 1) / us * 1e6 for us in plain],
            "split_tokens_per_s": [(tokens - 1) / us * 1e6 for us in split],
            "wait_us": waits,
        },
    )
