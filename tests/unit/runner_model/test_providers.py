"""Which execution providers `--ep` selects."""

from __future__ import annotations

import pytest
from constraintd_runner.model.errors import ProviderError
from constraintd_runner.model.providers import choose_providers

ONLY_CPU = ["AzureExecutionProvider", "CPUExecutionProvider"]
WITH_CUDA = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]


def test_cpu_is_the_cpu_even_where_there_is_a_gpu() -> None:
    chosen = choose_providers("cpu", WITH_CUDA)
    assert (chosen.names, chosen.device, chosen.note) == (("CPUExecutionProvider",), "cpu", "")


def test_cuda_keeps_the_cpu_behind_it_and_the_cache_on_the_device() -> None:
    chosen = choose_providers("cuda", WITH_CUDA)
    assert chosen.names == ("CUDAExecutionProvider", "CPUExecutionProvider")
    assert chosen.device == "cuda"


def test_cuda_without_its_provider_says_what_to_install() -> None:
    with pytest.raises(ProviderError, match=r"no CUDAExecutionProvider .*Install onnxruntime-gpu"):
        choose_providers("cuda", ONLY_CPU)


def test_auto_takes_cuda_where_it_is_there() -> None:
    assert choose_providers("auto", WITH_CUDA).device == "cuda"


def test_auto_falls_back_to_the_cpu_and_says_so() -> None:
    chosen = choose_providers("auto", ONLY_CPU)
    assert chosen.names == ("CPUExecutionProvider",)
    assert chosen.note == "auto: CUDAExecutionProvider is not available, the CPU is used"


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ProviderError, match="--ep rocm: unknown execution provider"):
        choose_providers("rocm", ONLY_CPU)
