"""Programs written in Go that a test runs, at one version each, built once and kept beside the virtual environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

_MODULES: Final = {
    "grpcurl": ("github.com/fullstorydev/grpcurl/cmd/grpcurl", "v1.9.4"),
    "grpc-health-probe": ("github.com/grpc-ecosystem/grpc-health-probe", "v0.4.63"),
}
_BUILD_SECONDS: Final = 600


def go_tool(name: str) -> Path:
    """The program; the first time it is fetched and built, which takes a minute or two.

    Raises RuntimeError if Go is not there, or can't build it.
    """
    module, version = _MODULES[name]
    home = Path(sys.prefix) / "go-tools" / version
    program = home / name
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise RuntimeError(f"{name} has to be built and Go is not installed: install Go 1.26 or later")
    home.mkdir(parents=True, exist_ok=True)
    # Built elsewhere and moved, so that a build that was interrupted leaves nothing that looks whole.
    with tempfile.TemporaryDirectory(dir=home) as folder:
        built = subprocess.run(
            ["go", "install", f"{module}@{version}"],
            env={**os.environ, "GOBIN": folder, "GOFLAGS": "-mod=mod"},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
        )
        if built.returncode:
            raise RuntimeError(f"go install {module}@{version} failed:\n{built.stderr[-3000:]}")
        (Path(folder) / name).rename(program)
    return program


if __name__ == "__main__":
    for each in _MODULES:
        print(go_tool(each))
