"""Turns `--ep cpu|cuda|auto` into ONNX Runtime execution providers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnxruntime

from .errors import ProviderError

CUDA = "CUDAExecutionProvider"
CPU = "CPUExecutionProvider"


@dataclass(frozen=True, slots=True)
class Providers:
    """What to open a session with, and where its KV cache lives."""

    names: tuple[str, ...]
    device: str
    """ONNX Runtime's device name for IO binding: "cpu" or "cuda" (device 0)."""
    note: str
    """Why these, in words for the log; empty where the caller got just what was asked for."""


def choose_providers(ep: str, available: Sequence[str] | None = None) -> Providers:
    """The providers for `ep`, which is "cpu", "cuda" or "auto" (CUDA where it is there, else CPU).

    `available` is what the installed onnxruntime offers, asked from it if None. Raises ProviderError
    for an unknown name, and for "cuda" where it is missing, saying which package has it.
    """
    found = tuple(onnxruntime.get_available_providers() if available is None else available)
    if ep == "cpu":
        return Providers((CPU,), "cpu", "")
    if ep not in ("cuda", "auto"):
        raise ProviderError(f"--ep {ep}: unknown execution provider; choose cpu, cuda or auto")
    if CUDA in found:
        # The CPU provider stays behind it for the few shape operators that CUDA leaves to the host.
        # The CUDA path has not been run on a GPU yet.
        return Providers((CUDA, CPU), "cuda", "" if ep == "cuda" else f"auto: {CUDA} is available")
    if ep == "auto":
        return Providers((CPU,), "cpu", f"auto: {CUDA} is not available, the CPU is used")
    raise ProviderError(
        f"--ep cuda: the installed onnxruntime {onnxruntime.__version__} has no {CUDA} "
        f"(it has: {', '.join(found)}). Install onnxruntime-gpu in place of onnxruntime "
        "(pip uninstall onnxruntime && pip install 'onnxruntime-gpu[cuda,cudnn]'), or use --ep cpu."
    )
