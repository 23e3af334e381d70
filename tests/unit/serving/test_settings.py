"""Four layers, each stronger than the one before; what none of them knows is refused, with its place."""

from __future__ import annotations

import argparse
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from constraintd.serving.settings import BadConfig, Loaded, load, setting, settings_of
from constraintd.serving.settings_file import write_settings
from constraintd.serving.settings_flags import add_flags, given_flags


@dataclass(frozen=True, slots=True)
class Bounds:
    max_things: int = 7


@dataclass(frozen=True, slots=True)
class Example:
    name: str = setting(text="required")
    listen: tuple[str, ...] = setting(("here",), "addresses")
    seconds: float = setting(1.5, "to wait")
    workers: int | None = setting(None, "at once", minimum=1)
    careful: bool = setting(True, "or not")
    color: Literal["red", "blue"] = setting("red", "of it")
    trap: str = setting("", hidden=True)
    secret: str = setting("", shown=lambda value: "***" if value else "")
    bounds: Bounds = field(default_factory=Bounds)


def loaded(
    toml: str | None = None, flags: dict[str, Any] | None = None, folder: Path | None = None, **environment: str
) -> Loaded[Example]:
    file = None
    if toml is not None:
        assert folder is not None
        (folder / "x.toml").write_text(toml)
        file = str(folder / "x.toml")
    return load(Example, prefix="EX_", flags=flags or {}, environment=environment, file=file, foreign=("EX_OTHER_",))


def complaint(*arguments: Any, **keywords: Any) -> str:
    with pytest.raises(BadConfig) as caught:
        loaded(*arguments, **keywords).config(prefix="EX_")
    return str(caught.value)


def test_a_flag_overrides_the_environment_which_overrides_the_file_which_overrides_the_default(tmp_path: Path) -> None:
    file = 'name = "a"\nseconds = 2\n[bounds]\nmax_things = 8'
    found = loaded(file, {"seconds": 4.0}, tmp_path, EX_SECONDS="3", EX_MAX_THINGS="9")
    config = found.config(prefix="EX_")
    assert (config.name, config.seconds, config.bounds.max_things, config.color) == ("a", 4.0, 9, "red")
    assert found.origins["seconds"] == "flag --seconds"
    assert found.origins["bounds.max_things"] == "environment EX_MAX_THINGS"
    assert found.origins["name"] == f"{tmp_path}/x.toml"
    assert found.origins["color"] == "default"


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "y.toml").write_text('name = "b"')
    assert loaded(EX_CONFIG=f"{tmp_path}/y.toml").config(prefix="EX_").name == "b"


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("secods = 1", "secods is no setting; did you mean seconds?"),
        ("[bounds]\nmax_thing = 1", "bounds.max_thing is no setting; did you mean bounds.max_things?"),
        ("max_things = 1", "max_things is no setting; did you mean bounds.max_things?"),
        ("[bounds.max_things]\nx = 1", "bounds.max_things: expected a whole number, found a table"),
        ("[zzz]\nx = 1", "zzz is no setting; `config show` prints all of them"),
        ('seconds = "soon"', "seconds: expected a number, found a string"),
        ("seconds = true", "seconds: expected a number, found true or false"),
        ("seconds = -1", "seconds: expected a number of at least 0"),
        ("seconds = nan", "seconds: expected a number of at least 0"),
        ("seconds = inf", "seconds: expected a number of at least 0"),
        ("workers = 0", "workers: expected a number of at least 1"),
        ("workers = 1.0", "workers: expected a whole number, found a number"),
        ("careful = 1", "careful: expected true or false, found a whole number"),
        ('careful = "yes"', "careful: expected true or false, found a string"),
        ('color = "green"', "color: expected one of red, blue"),
        ('listen = "here"', "listen: expected a list of strings, found a string"),
        ("listen = []", "listen: expected at least one, and none empty"),
        ('listen = ["a", 2]', "listen: expected a list of strings, found a list"),
        ("bounds = 3", "bounds is no setting"),
        ('trap = "x"', "trap is no setting"),
        ("name = 2026-11-29", "name: expected a string, found a date or time"),
        ("name = ", "not TOML: Invalid value (at end of document)"),
        ('name = "a"\nname = "b"', "not TOML: Cannot overwrite a value"),
    ],
)
def test_a_file_s_mistake_is_told_with_its_place_and_what_would_do(toml: str, words: str, tmp_path: Path) -> None:
    told = complaint(toml, None, tmp_path)
    assert told.startswith(f"{tmp_path}/x.toml: ")
    assert words in told


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe", "byte 0 is not UTF-8"),
        (b"#" * (1 << 20) + b"\n", "at most 1048576 bytes"),
        (b"a = " + b"[" * 100_000, "x.toml"),
    ],
)
def test_a_file_of_another_kind_is_told(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(content)
    with pytest.raises(BadConfig) as caught:
        load(Example, prefix="EX_", flags={}, environment={}, file=str(tmp_path / "x.toml"))
    assert words in str(caught.value)


def test_a_file_that_is_not_there_or_a_folder_is_told(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(BadConfig, match=words):
            load(Example, prefix="EX_", flags={}, environment={}, file=str(path))


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("EX_SECODS", "1", "EX_SECODS is no setting; did you mean EX_SECONDS?"),
        ("EX_TRAP", "x", "EX_TRAP is no setting"),
        ("EX_SECONDS", "soon", "EX_SECONDS: expected a number"),
        ("EX_WORKERS", "1e3", "EX_WORKERS: expected a whole number"),
        ("EX_WORKERS", "0", "EX_WORKERS: expected a number of at least 1"),
        ("EX_WORKERS", "9" * 5000, "EX_WORKERS: expected a whole number"),
        ("EX_CAREFUL", "maybe", "EX_CAREFUL: expected true or false"),
        ("EX_COLOR", "green", "EX_COLOR: expected one of red, blue"),
        ("EX_LISTEN", "a,,b", "EX_LISTEN: expected at least one, and none empty"),
    ],
)
def test_the_environment_s_mistake_is_told_with_its_variable(variable: str, value: str, words: str) -> None:
    told = complaint(**{"EX_NAME": "a", variable: value})
    assert words in told
    assert value not in told or len(value) < 6


def test_a_list_in_the_environment_has_commas() -> None:
    assert loaded(EX_NAME="a", EX_LISTEN="b, c").config(prefix="EX_").listen == ("b", "c")


def test_what_kubernetes_or_somebody_else_puts_there_is_no_setting() -> None:
    links = {
        "EX_SERVICE_HOST": "10.0.0.1",
        "EX_SERVICE_PORT": "50051",
        "EX_SERVICE_PORT_GRPC": "50051",
        "EX_PORT": "tcp://10.0.0.1:50051",
        "EX_PORT_50051_TCP": "tcp://10.0.0.1:50051",
        "EX_PORT_50051_TCP_ADDR": "10.0.0.1",
        "EX_DAEMON_SERVICE_HOST": "10.0.0.2",
        "EX_DAEMON_PORT_50051_TCP_PROTO": "tcp",
        "EX_OTHER_NAME": "of another program",
    }
    assert loaded(EX_NAME="a", **links).config(prefix="EX_").name == "a"


def test_what_must_be_given_is_asked_for_by_all_its_names() -> None:
    assert complaint() == "name is not set; give --name, EX_NAME or `name` in the config file"


def flags_of(*arguments: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    add_flags(parser, Example, tables={"bounds": "what is allowed"}, prefix="EX_")
    return given_flags(parser.parse_args(arguments), Example)


def test_only_flags_that_were_given_count() -> None:
    assert flags_of() == {}
    assert flags_of("--listen", "a,b", "--listen", "c", "--no-careful", "--max-things", "3") == {
        "listen": ("a,b", "c"),  # a comma may stand in a path
        "careful": False,
        "max_things": 3,
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--seconds", "x"), "expected a number: 'x'"),
        (("--color", "green"), "expected one of red, blue"),
        (("--max-things", "-1"), "expected a number of at least 0"),
        (("--listen", ""), "none empty"),
    ],
)
def test_a_flag_s_mistake_is_told(arguments: tuple[str, str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        flags_of(*arguments)
    told = capsys.readouterr().err
    assert arguments[0] in told
    assert words in told


def test_what_config_show_prints_is_a_file_that_says_the_same_and_no_secret(tmp_path: Path) -> None:
    found = loaded('name = "say \\"é\\"\\n\\u007f"\nsecret = "hush"', None, tmp_path, EX_WORKERS="3")
    text = write_settings(settings_of(Example), found.values, found.origins)
    assert "hush" not in text
    assert 'secret = "***"' in text
    assert "workers = 3  # environment EX_WORKERS" in text
    again = loaded(text, None, tmp_path)
    assert tomllib.loads(text)["bounds"] == {"max_things": 7}
    same = ("name", "listen", "seconds", "workers", "careful", "color", "bounds.max_things")
    assert [again.values[key] for key in same] == [found.values[key] for key in same]


def test_config_show_names_what_is_missing_too() -> None:
    found = loaded()
    assert "# name is not set, and must be" in write_settings(settings_of(Example), found.values, found.origins)
