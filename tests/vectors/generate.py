"""Writes the reference vectors: `python -m tests.vectors.generate [FOLDER]`. The same files every time."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from random import Random
from typing import Any

from tests.vectors.cases import penalties, sessions, stages

FOLDER = Path(__file__).parent
SEED = 20260401


def vector_files() -> dict[str, list[dict[str, Any]]]:
    """The vectors by file name, with -inf as a string."""
    files: dict[str, list[dict[str, Any]]] = {}
    for name in stages.PARAMETERS:
        cases = list(stages.stage_vectors(name, Random(f"{SEED} {name}"), 60))
        files[f"{name}.json"] = [case | {"expected": stages.expected(case)} for case in cases]
    chains = stages.chain_vectors(Random(f"{SEED} chains"), 60)
    files["chains.json"] = [case | {"expected": stages.expected(case)} for case in chains]
    windows = penalties.window_vectors(Random(f"{SEED} window"), 30)
    files["window_penalty.json"] = [case | {"expected": penalties.expected(case)} for case in windows]
    ngrams = penalties.ngram_vectors(Random(f"{SEED} n-grams"), 60)
    files["ngram_penalty.json"] = [case | {"expected": penalties.expected(case)} for case in ngrams]
    whole = sessions.session_vectors(Random(f"{SEED} sessions"), 20)
    files["sessions.json"] = [case | {"expected": sessions.session_expected(case)} for case in whole]
    draws = sessions.draw_vectors(Random(f"{SEED} draws"), 40)
    files["draws.json"] = [case | {"expected": sessions.draw_expected(case)} for case in draws]
    return {name: _writable(vectors) for name, vectors in files.items()}


def _writable(value: Any) -> Any:
    """The value with -inf, which JSON lacks, as a string."""
    if isinstance(value, dict):
        return {key: _writable(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_writable(part) for part in value]
    return "-inf" if value == -math.inf else value


def write_vectors(folder: Path) -> None:
    """Write every file, one vector a line."""
    for name, vectors in vector_files().items():
        lines = [json.dumps(vector, allow_nan=False, separators=(",", ":")) for vector in vectors]
        (folder / name).write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    write_vectors(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
