"""The one form of every benchmark: its result, the machine that it ran on, and how both are shown."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

Progress = Callable[[str, int, int], None]
"""Called with what is being done, steps done, and steps in all."""

_PACKAGES = ("numpy", "onnxruntime", "onnxruntime-genai", "llguidance", "grpcio", "protobuf")


@dataclass(frozen=True, slots=True)
class Result:
    """What one run measured. `figures` are what bars name; `samples` what they were taken from, unit in the name."""

    figures: Mapping[str, float]
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def as_json(self, name: str) -> dict[str, Any]:
        """The object that `--json` prints."""
        return {
            "benchmark": name,
            "figures": dict(self.figures),
            "samples": {key: list(values) for key, values in self.samples.items()},
            "machine": machine(),
        }


def machine() -> dict[str, Any]:
    """Where it ran: processor, cores that may be used, memory, versions."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {package: version(package) for package in _PACKAGES},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def table(name: str, result: Result) -> str:
    """The figures, then the samples' spread, for reading."""
    width = max(map(len, [*result.figures, *result.samples]), default=0)
    lines = [name, *[f"  {key:{width}}  {_number(value):>10}" for key, value in result.figures.items()]]
    if result.samples:
        lines.append(f"\n  {'':{width}}  {'n':>6} {'min':>10} {'median':>10} {'max':>10}")
    for key, values in result.samples.items():
        if values:
            spread = (min(values), statistics.median(values), max(values))
            lines.append(f"  {key:{width}}  {len(values):>6} " + " ".join(f"{_number(v):>10}" for v in spread))
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def show_progress(what: str, done: int, total: int) -> None:
    """One line on stderr, rewritten in place on a terminal and left out elsewhere."""
    if not sys.stderr.isatty():
        return
    bar = "#" * (24 * done // max(total, 1))
    end = "\n" if done >= total else ""
    print(f"\r\x1b[K[{bar:24}] {done}/{total} {what}", end=end, file=sys.stderr, flush=True)
