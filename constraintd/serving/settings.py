"""One typed config from four layers, each stronger than the one before: default, file, environment, flag.

A setting is a field of a frozen dataclass. Its name is the key in the file; the flag is the name with dashes, the
environment's variable the name in capitals behind a prefix. A nested dataclass is a table of the file; its settings'
flags and variables go without the table's name. What no layer knows is refused, with its place and the nearest name
that is known: a misspelled limit must not mean "no limit".
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Final, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

from constraintd.serving.settings_file import read_tables

C = TypeVar("C")

# Kubernetes puts the addresses of every Service into every container; one named "constraintd" gives CONSTRAINTD_PORT
# and the like. They are nobody's settings.
_SERVICE_LINK: Final = re.compile(r"(.*_)?(SERVICE_(HOST|PORT(_.+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")


class BadConfig(Exception):
    """A setting is unknown, missing or can't be what it is; the message says where and what would do."""


def setting(
    default: Any = MISSING,
    text: str = "",
    *,
    factory: Callable[[], Any] | None = None,
    metavar: str | None = None,
    minimum: float = 0,
    check: Callable[[Any], str | None] = lambda _value: None,
    shown: Callable[[Any], Any] = lambda value: value,
    hidden: bool = False,
) -> Any:
    """A dataclass field that is a setting. Without `default` and `factory` it must be given.

    `minimum`: of a number. `check`: what is wrong with a value, None if nothing is. `shown`: the value without its
    secrets. `hidden`: it is a flag that --help does not name, and nothing else.
    """
    metadata = {
        "text": text,
        "metavar": metavar,
        "minimum": minimum,
        "check": check,
        "shown": shown,
        "hidden": hidden,
    }
    if factory is not None:
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Setting:
    """One of them, as the layers see it."""

    name: str
    table: str
    """The table of the file that it stands in; "" for the top."""
    kind: type
    """str, int, float or bool."""
    many: bool
    optional: bool
    choices: tuple[str, ...]
    default: Any
    """MISSING if it must be given."""
    text: str = ""
    metavar: str | None = None
    minimum: float = 0
    check: Callable[[Any], str | None] = lambda _value: None
    shown: Callable[[Any], Any] = lambda value: value
    hidden: bool = False

    @property
    def key(self) -> str:
        """Its place in the file."""
        return f"{self.table}.{self.name}" if self.table else self.name

    @property
    def flag(self) -> str:
        """Its flag."""
        return "--" + self.name.replace("_", "-")

    def from_text(self, text: str) -> Any:
        """The value that a flag or variable spells. Raises ValueError, with what was expected."""
        if self.many:
            return self._checked(tuple(part.strip() for part in text.split(",")))
        if self.kind is bool:
            if text.lower() not in _BOOLEANS:
                raise ValueError("expected true or false")
            return _BOOLEANS[text.lower()]
        try:
            return self._checked(self.kind(text))
        except (ValueError, OverflowError) as error:
            raise ValueError(str(error) if isinstance(error, _Refused) else f"expected {self._expected}") from None

    def from_file(self, value: object) -> Any:
        """The value that a file gives. Raises ValueError, with what was expected."""
        if self.many:
            if not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
                raise ValueError(f"expected {self._expected}, found {_kind_of(value)}")
            return self._checked(tuple(value))
        fits = isinstance(value, int | float) if self.kind is float else isinstance(value, self.kind)
        if not fits or (isinstance(value, bool) and self.kind is not bool):
            raise ValueError(f"expected {self._expected}, found {_kind_of(value)}")
        return self._checked(self.kind(value))

    def _checked(self, value: Any) -> Any:
        if self.many and not (value and all(value)):
            raise _Refused("expected at least one, and none empty")
        if self.choices and value not in self.choices:
            raise _Refused(f"expected one of {', '.join(self.choices)}")
        if self.kind in (int, float) and not self.minimum <= value < float("inf"):
            raise _Refused(f"expected a number of at least {self.minimum:g}")
        problem = self.check(value)
        if problem is not None:
            raise _Refused(problem)
        return value

    @property
    def _expected(self) -> str:
        return "a list of strings" if self.many else _KINDS[self.kind]


class _Refused(ValueError):
    """Of the right type, and no value for this setting."""


_KINDS: Final[Mapping[type, str]] = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
_FOUND: Final[Mapping[type, str]] = {**_KINDS, dict: "a table", list: "a list"}
_BOOLEANS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _kind_of(value: object) -> str:
    return _FOUND.get(type(value), "a date or time")


def settings_of(config: type, table: str = "") -> tuple[Setting, ...]:
    """The settings of a config class, in its order."""
    found: list[Setting] = []
    hints = get_type_hints(config)
    for each in fields(config):
        hint = hints[each.name]
        if is_dataclass(hint):
            assert isinstance(hint, type)
            found += settings_of(hint, each.name)
            continue
        optional = isinstance(hint, UnionType)
        if optional:
            (hint,) = (part for part in get_args(hint) if part is not NoneType)
        many = get_origin(hint) is tuple
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        kind = str if many or choices else hint
        default = each.default if each.default_factory is MISSING else each.default_factory()
        found.append(Setting(each.name, table, kind, many, optional, choices, default, **each.metadata))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[C]):
    """The values in force, and where each came from, by key; a required one that is missing is in neither."""

    kind: type[C]
    values: Mapping[str, Any]
    origins: Mapping[str, str]

    def config(self, *, prefix: str) -> C:
        """The config. Raises BadConfig for what had to be given and is not."""
        for each in settings_of(self.kind):
            if each.key not in self.values:
                raise BadConfig(
                    f"{each.name} is not set; give {each.flag}, {prefix}{each.name.upper()} or `{each.key}` in the "
                    "config file"
                )
        config: C = self._build(self.kind, "")
        return config

    def _build(self, kind: Any, table: str) -> Any:
        hints = get_type_hints(kind)
        values = {}
        for each in fields(kind):
            nested = hints[each.name]
            values[each.name] = (
                self._build(nested, each.name)
                if is_dataclass(nested)
                else self.values[f"{table}.{each.name}" if table else each.name]
            )
        return kind(**values)


def load(
    kind: type[C],
    *,
    prefix: str,
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    file: str | None = None,
    foreign: Sequence[str] = (),
) -> Loaded[C]:
    """Reads all layers. `flags`: values by name. `file`: the config file's path; None: what `{prefix}CONFIG` names, if
    it is set. `foreign`: beginnings of variables that carry the prefix and belong to others. Raises BadConfig.
    """
    known = settings_of(kind)
    values = {each.key: each.default for each in known if each.default is not MISSING}
    origins = dict.fromkeys(values, "default")
    path = file if file is not None else environment.get(f"{prefix}CONFIG")
    if path is not None:
        _take_file(path, known, values, origins)
    _take_environment(prefix, environment, foreign, known, values, origins)
    for each in known:
        if each.name in flags:
            values[each.key], origins[each.key] = flags[each.name], f"flag {each.flag}"
    return Loaded(kind, values, origins)


def _take_file(path: str, known: Sequence[Setting], values: dict[str, Any], origins: dict[str, str]) -> None:
    by_key = {each.key: each for each in known if not each.hidden}
    tables = {each.table for each in known}
    try:
        document = read_tables(path)
    except ValueError as error:
        raise BadConfig(str(error)) from None
    flat: dict[str, object] = {}
    for name, value in document.items():
        if isinstance(value, dict) and name in tables:
            flat |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            flat[name] = value
    for key, value in flat.items():
        if key not in by_key:
            raise BadConfig(f"{path}: {key} is no setting{_nearest(key, list(by_key))}")
        try:
            values[key] = by_key[key].from_file(value)
        except ValueError as error:
            raise BadConfig(f"{path}: {key}: {error}") from None
        origins[key] = path


def _take_environment(
    prefix: str,
    environment: Mapping[str, str],
    foreign: Sequence[str],
    known: Sequence[Setting],
    values: dict[str, Any],
    origins: dict[str, str],
) -> None:
    by_variable = {prefix + each.name.upper(): each for each in known if not each.hidden}
    for variable, text in sorted(environment.items()):
        if not variable.startswith(prefix) or variable == f"{prefix}CONFIG":
            continue
        each = by_variable.get(variable)
        if each is None:
            if variable.startswith(tuple(foreign)) or _SERVICE_LINK.fullmatch(variable.removeprefix(prefix)):
                continue
            raise BadConfig(f"environment: {variable} is no setting{_nearest(variable, list(by_variable))}; unset it")
        try:
            values[each.key] = each.from_text(text)
        except ValueError as error:
            raise BadConfig(f"environment: {variable}: {error}") from None
        origins[each.key] = f"environment {variable}"


def _nearest(name: str, known: Sequence[str]) -> str:
    """The known name that was meant, perhaps in another table."""
    last = {each.rpartition(".")[2]: each for each in known}
    close = difflib.get_close_matches(name.rpartition(".")[2], list(last), n=1, cutoff=0.6)
    return f"; did you mean {last[close[0]]}?" if close else "; `config show` prints all of them"
