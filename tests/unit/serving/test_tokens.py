"""The tokens file, its lines, and whom it lets in."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from constraintd.cli import main
from constraintd.serving.settings import BadConfig
from constraintd.serving.tokens import Refused, TokensFile, new_token, time_of

DIGEST = hashlib.sha256(b"secret").hexdigest()


def file_of(folder: Path, content: str | bytes) -> Path:
    path = folder / "tokens"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_bearer_is_known_by_the_hash_of_its_token(tmp_path: Path) -> None:
    tokens = TokensFile(file_of(tmp_path, f"# who may call\n\nann {DIGEST}  # hers\n"))
    assert tokens.bearer(["Bearer secret"]) == "ann"
    assert tokens.bearer(["bearer  secret "]) == "ann"


@pytest.mark.parametrize(
    "headers",
    [[], ["secret"], ["Basic secret"], ["Bearer"], ["Bearer "], ["Bearer wrong"], [f"Bearer {DIGEST}"],
     ["Bearer secret", "Bearer secret"], ["Bearer sécret"], ["Bearer " + "x" * 100_000]],
)  # fmt: skip
def test_everything_else_is_refused_without_repeating_it(headers: list[str], tmp_path: Path) -> None:
    tokens = TokensFile(file_of(tmp_path, f"ann {DIGEST}\n"))
    with pytest.raises(Refused) as caught:
        tokens.bearer(headers)
    assert "secret" not in str(caught.value)
    assert DIGEST not in str(caught.value)


def test_a_token_is_good_until_its_time(tmp_path: Path) -> None:
    now = [time_of("2027-01-31T11:59:59Z")]
    tokens = TokensFile(file_of(tmp_path, f"ann {DIGEST} until=2027-01-31T12:00:00Z"), clock=lambda: now[0])
    assert tokens.bearer(["Bearer secret"]) == "ann"
    now[0] += 1
    with pytest.raises(Refused, match="expired"):
        tokens.bearer(["Bearer secret"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no token is in it"),
        ("# nobody\n", "no token is in it"),
        ("ann", ":1: expected NAME SHA256"),
        (f"ok {DIGEST}\nann cdt_plain", ":2: expected NAME SHA256"),
        (f"ann {DIGEST.upper()}", ":1: expected NAME SHA256"),
        (f"a,n {DIGEST}", ":1: expected NAME SHA256"),
        (f"ann {DIGEST} 2027", ":1: expected until="),
        (f"ann {DIGEST} until=later", ":1: expected until="),
        (f"ann {DIGEST} until=2027-01-31 more", ":1: expected NAME SHA256"),
        (f"ann {DIGEST}\nann {DIGEST[::-1]}", ":2: the name or hash stands there twice"),
        (f"ann {DIGEST}\nbob {DIGEST}", ":2: the name or hash stands there twice"),
        (b"ann \xff", "not UTF-8"),
        (b"#" * (1 << 20) + b"\n", "at most 1048576 bytes"),
    ],
)
def test_a_file_s_mistake_is_told_with_its_line_and_without_what_may_be_a_token(
    content: str | bytes, words: str, tmp_path: Path
) -> None:
    with pytest.raises(BadConfig) as caught:
        TokensFile(file_of(tmp_path, content))
    assert words in str(caught.value)
    assert "cdt_plain" not in str(caught.value)


def test_the_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="No such file"):
        TokensFile(tmp_path / "none")


def test_two_tokens_are_never_the_same_and_a_token_is_not_in_its_line() -> None:
    (first, one), (second, _) = new_token("ann"), new_token("ann")
    assert first != second
    assert one.digest == hashlib.sha256(first.encode()).digest()
    assert first not in one.line()
    assert len(first) >= 40


def test_the_command_prints_a_token_and_its_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["token", "ann", "--until", "2999-12-31"]) == 0
    token, line = (each.partition(":")[2].strip() for each in capsys.readouterr().out.splitlines())
    assert line.endswith("until=2999-12-31T00:00:00Z")
    assert TokensFile(file_of(tmp_path, line)).bearer([f"Bearer {token}"]) == "ann"


def test_the_command_appends_to_a_file_even_one_without_a_last_newline(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = file_of(tmp_path, f"ann {DIGEST}")
    assert main(["token", "bob", "--append", str(path)]) == 0
    tokens = TokensFile(path)
    assert tokens.bearer([f"Bearer {capsys.readouterr().out.strip()}"]) == "bob"
    assert tokens.bearer(["Bearer secret"]) == "ann"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a b"], "no name"),
        (["ann", "--until", "tomorrow"], "expected a date"),
        (["ann", "--until", "2001-01-01"], "has passed"),
        (["ann", "--append", "/none/tokens"], "/none/tokens"),
        (["ann", "--append", os.devnull + "/x"], os.devnull),
    ],
)
def test_the_command_s_mistakes_are_told(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", *arguments]) == 1
    assert words in capsys.readouterr().err


def test_a_name_that_stands_there_already_is_not_appended(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = file_of(tmp_path, f"ann {DIGEST}\n")
    assert main(["token", "ann", "--append", str(path)]) == 1
    assert "has a token there already" in capsys.readouterr().err
    assert path.read_text() == f"ann {DIGEST}\n"
