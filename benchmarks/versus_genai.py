"""The runner's loop against onnxruntime-genai in process: same folder, threads, prompt, schema; greedy, decode only.

Left alone, onnxruntime-genai takes half of the cores. Both loops run the same kernels, so how many threads it has
decides most of the ratio: it gets as many as ours by its own setting, and is measured beside that as it comes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import onnxruntime_genai as og
from constraintd_runner.model.fetch import fetch_smollm2
from tokenizers import Tokenizer

from benchmarks.form import Progress, Result
from benchmarks.loop import PROMPT, SCHEMA, both
from constraintd.serving.cpu_budget import cpu_budget

NAME = "versus-genai"
SUMMARY = "the runner's loop against onnxruntime-genai in process, unconstrained and under one JSON schema"


def add_options(parser: argparse.ArgumentParser) -> None:
    """How much to run."""
    parser.add_argument("--pairs", type=int, default=15, help="alternating pairs of runs [%(default)s]")
    parser.add_argument("--tokens", type=int, default=128, help="tokens a run [%(default)s]")
    parser.add_argument("--threads", type=int, default=cpu_budget(), help="of ONNX Runtime [%(default)s]")


class Genai:
    """onnxruntime-genai with the same folder; `threads` None leaves its own choice."""

    def __init__(self, folder: Path, threads: int | None) -> None:
        config = og.Config(str(folder))
        if threads is not None:
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
    """`unconstrained_ratio`, `constrained_ratio_b1`: our tokens/s over genai's at the same number of threads, medians
    of alternating pairs; `..._default_threads`: over genai's as it comes.
    """
    folder = fetch_smollm2()
    threads = threads or cpu_budget()
    genai, as_it_comes = Genai(folder, threads), Genai(folder, None)
    with both(folder, threads=threads, length=1024) as (unconstrained, constrained):
        sides = {
            "ours": lambda: unconstrained.run(tokens).decode_us / 1e6,
            "genai": lambda: genai.run(tokens),
            "ours_constrained": lambda: constrained.run(tokens)[1].decode_us / 1e6,
            "genai_constrained": lambda: genai.run(tokens, schema=SCHEMA),
            "genai_default_threads": lambda: as_it_comes.run(tokens),
            "genai_default_threads_constrained": lambda: as_it_comes.run(tokens, schema=SCHEMA),
        }
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for side in sides.values():
            side()  # warm
        for pair in range(pairs):
            progress("pairs of runs", pair, pairs)
            for name in list(sides) if pair % 2 else reversed(sides):
                seconds[name].append(sides[name]())
    progress("done", pairs, pairs)
    ratios = {
        figure: [theirs / ours for ours, theirs in zip(seconds[ours_name], seconds[theirs_name], strict=True)]
        for figure, ours_name, theirs_name in (
            ("unconstrained_ratio", "ours", "genai"),
            ("constrained_ratio_b1", "ours_constrained", "genai_constrained"),
            ("unconstrained_ratio_default_threads", "ours", "genai_default_threads"),
            ("constrained_ratio_b1_default_threads", "ours_constrained", "genai_default_threads_constrained"),
        )
    }
    return Result(
        {figure: statistics.median(values) for figure, values in ratios.items()},
        {
            **{f"{figure}_ratio": values for figure, values in ratios.items()},
            **{f"{name}_tokens_per_s": [(tokens - 1) / s for s in values] for name, values in seconds.items()},
        },
    )
