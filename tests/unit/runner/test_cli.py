"""The command line."""

from __future__ import annotations

import subprocess
import sys

import pytest
from constraintd_runner.cli import main

HEAVY = ("onnxruntime", "onnx", "grpc", "numpy", "tokenizers", "jinja2", "constraintd_client")


@pytest.mark.parametrize("command", [["serve"], ["generate"], ["model", "fetch"]])
def test_every_command_explains_itself_with_an_example(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*command, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "example:" in text
    assert "constraintd-runner " + " ".join(command) in text


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from constraintd_runner.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("HEAVY []\n")


def test_two_constraints_are_one_too_many(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["generate", "--runner", "x", "--prompt", "a", "--json", "--regex", "b"])
    assert caught.value.code == 2
    assert "not allowed with argument --json" in capsys.readouterr().err


def test_a_runner_that_is_not_there_is_named_with_what_to_do(
    tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "--runner", f"unix:{tmp_path}/none.sock", "--prompt", "a"]) == 1
    assert "start one with `constraintd-runner serve" in capsys.readouterr().err


def test_a_schema_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--runner", "unix:/none", "--prompt", "a", "--schema", "/no/such.json"]) == 1
    assert "/no/such.json" in capsys.readouterr().err


def test_a_model_folder_that_is_not_there_is_named(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--model", f"{tmp_path}/none", "--daemon", "unix:/none"]) == 1
    assert f"{tmp_path}/none" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option", [["--tool-choice", "auto"], ["--tool-format", "hermes"], ["--single"], ["--calls-only"]]
)
def test_tool_options_without_tools_are_refused(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--runner", "unix:/none", "--prompt", "a", *option]) == 1
    assert "go with --tools FILE" in capsys.readouterr().err


def test_tools_and_a_grammar_are_one_constraint_too_many(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["generate", "--runner", "x", "--prompt", "a", "--tools", "t.json", "--gbnf", "g"])
    assert caught.value.code == 2
    assert "not allowed with argument --tools" in capsys.readouterr().err
