"""The runner's loop against onnxruntime-genai in process: same folder, threads, prompt, schema; greedy, decode only."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import onnxruntime_genai as og
from constraintd_runner.model.cpu_budget import cpu_budget
from constraintd_runner.model.fetch import fetch_smollm2
from tokenizers import Tokenizer

from benchmarks.form import Progress, Result
from benchmarks.loop import PROMPT, SCHEMA, both

NAME = "versus-genai"
SUMMARY = "the runner's loop against onnxruntime-genai in process, unconstrained and under one JSON schema"


def add_options(parser: argparse.ArgumentParser) -> None:
    """How much to run."""
    parser.add_argument("--pairs", type=int, default=15, help="alternating pairs of runs [%(default)s]")
    parser.add_argument("--tokens", type=int, default=128, help="tokens a run [%(default)s]")
    parser.add_argument("--threads", type=int, default=cpu_budget(), help="of ONNX Runtime [%(default)s]")


class Genai:
    """onnxruntime-genai with the same folder and threads."""

    def __init__(self, folder: Path, threads: int) -> None:
        config = og.Config(str(folder))
        session = {"intra_op_num_threads": threads}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": session}}}))
        self._model = og.Model(config)
        self._prompt: Sequence[int] = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(PROMPT).ids

    def run(self, tokens: int, *, schema: str | None = None) -> float:
        """Seconds for `tokens` - 1 forward passes and `tokens` picks less the first; EOG is suppressed.

        Raises RuntimeError if it ends early.
        """
        params = og.GeneratorParams(self._model)
        length = len(self._prompt) + tokens
        params.set_search_options(max_length=length, min_length=length, do_sample=False)
        if schema is not None:
            params.set_guidance("json_schema", schema)
        generator = og.Generator(self._model, params)
        generator.append_tokens(self._prompt)
        generator.generate_next_token()  # picks from the prompt's logits: no forward pass of its own
        began = time.perf_counter()
        for _ in range(tokens - 1):
            generator.generate_next_token()
        seconds = time.perf_counter() - began
        if len(generator.get_sequence(0)) != length:
            raise RuntimeError("onnxruntime-genai ended early")
        return seconds


def run(progress: Progress, *, pairs: int = 15, tokens: int = 128, threads: int | None = None) -> Result:
    """`unconstrained_ratio`, `constrained_ratio_b1`: our tokens/s over genai's, the median of alternating pairs."""
    folder = fetch_smollm2()
    threads = threads or cpu_budget()
    genai = Genai(folder, threads)
    seconds: dict[str, list[float]] = {name: [] for name in ("ours", "genai", "ours_constrained", "genai_constrained")}
    with both(folder, threads=threads, length=1024) as (unconstrained, constrained):
        sides = {
            "ours": lambda: unconstrained.run(tokens).decode_us / 1e6,
            "genai": lambda: genai.run(tokens),
            "ours_constrained": lambda: constrained.run(tokens)[1].decode_us / 1e6,
            "genai_constrained": lambda: genai.run(tokens, schema=SCHEMA),
        }
        for side in sides.values():
            side()  # warm
        for pair in range(pairs):
            progress("pairs of runs", pair, pairs)
            order = list(sides)
            for name in order if pair % 2 else [order[1], order[0], order[3], order[2]]:
                seconds[name].append(sides[name]())
    progress("done", pairs, pairs)
    free = [b / a for a, b in zip(seconds["ours"], seconds["genai"], strict=True)]
    bound = [b / a for a, b in zip(seconds["ours_constrained"], seconds["genai_constrained"], strict=True)]
    return Result(
        {"unconstrained_ratio": statistics.median(free), "constrained_ratio_b1": statistics.median(bound)},
        {
            "unconstrained_ratio": free,
            "constrained_b1_ratio": bound,
            **{f"{name}_tokens_per_s": [(tokens - 1) / s for s in values] for name, values in seconds.items()},
        },
    )
