"""The config file: TOML, and `config show`, which writes it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from constraintd.serving.settings import Setting

_MAX_BYTES: Final = 1 << 20


def read_tables(path: str) -> dict[str, Any]:
    """What the file says. Raises ValueError, with the file's name, for one that can't be read."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"{path}: the config file can't be read: {reason}") from None
    if len(content) > _MAX_BYTES:
        raise ValueError(f"{path}: a config file has at most {_MAX_BYTES} bytes; this is another kind of file")
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: byte {error.start} is not UTF-8; a config file is TOML") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: not TOML: {error}") from None
    except RecursionError:
        raise ValueError(f"{path}: nested too deeply for a config file") from None


def write_settings(settings: Iterable[Setting], values: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """All settings as such a file, each with where its value came from, and without secrets."""
    lines: list[str] = []
    table = ""
    for each in settings:
        if each.hidden:
            continue
        if each.table != table:
            table = each.table
            lines += ["", f"[{table}]"]
        if each.key not in values:
            lines.append(f"# {each.name} is not set, and must be")
        elif values[each.key] is None:
            lines.append(f"# {each.name} is not set  # {origins[each.key]}")
        else:
            shown = _toml(each.shown(values[each.key]))
            lines.append(f"{each.name} = {shown}  # {origins[each.key]}")
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    # JSON's strings, numbers and booleans are TOML's, but for one character that TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
