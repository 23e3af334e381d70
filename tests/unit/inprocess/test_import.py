"""The in-process APIs need engines and NumPy, and nothing of the service around them."""

import subprocess
import sys

import pytest

from constraintd import inprocess

_LOADED = "import sys, constraintd.inprocess; print('\\n'.join(sorted(sys.modules)))"


@pytest.fixture(scope="module")
def loaded():
    """All modules that importing it loads in a fresh process."""
    answer = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, timeout=60, check=True)
    return set(answer.stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        "grpc",
        "google.protobuf",
        "onnxruntime",
        "constraintd.v1",
        "constraintd.service",
        "constraintd_runner",
        "asyncio",
    ],
)
def test_importing_it_loads_nothing_of_the_service_or_the_runner(loaded, module):
    assert "constraintd.inprocess" in loaded
    assert not {name for name in loaded if name == module or name.startswith(module + ".")}


@pytest.mark.parametrize(
    "name",
    ["ConstrainedSampler", "generate_constrained", "GrammarSampler", "AllowListConstraint", "SamplerState"],
)
def test_the_five_reference_apis_are_there_by_name(name):
    assert name in inprocess.__all__
    assert callable(getattr(inprocess, name))
