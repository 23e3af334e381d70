"""Settings as flags of a command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from typing import Any

from constraintd.serving.settings import Setting, settings_of


def add_flags(parser: argparse.ArgumentParser, kind: type, *, tables: Mapping[str, str], prefix: str) -> None:
    """A flag for every setting of a config class, and --config. `tables`: the help of each table's group."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help=f"a TOML file of these settings, which {prefix}... in the environment and flags override [{prefix}CONFIG]",
    )
    groups: dict[str, argparse._ArgumentGroup | argparse.ArgumentParser] = {"": parser}
    for name, text in tables.items():
        groups[name] = parser.add_argument_group(name, text)
    for each in settings_of(kind):
        _add_flag(groups[each.table], each)


def given_flags(options: argparse.Namespace, kind: type) -> dict[str, Any]:
    """The settings that were given as flags."""
    names = {each.name for each in settings_of(kind)}
    return {name: value for name, value in vars(options).items() if name in names}


def _add_flag(group: argparse._ArgumentGroup | argparse.ArgumentParser, each: Setting) -> None:
    if each.hidden:
        text = argparse.SUPPRESS
    elif each.default in (MISSING, None, False) or each.kind is bool:
        text = each.text
    else:
        default = " ".join(each.default) if each.many else each.default
        text = f"{each.text} [{default}]".strip()
    text = text if each.hidden else text.replace("%", "%%")
    if each.kind is bool:
        group.add_argument(
            each.flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text, dest=each.name
        )
        return
    group.add_argument(
        each.flag,
        action=_Gather if each.many else "store",
        default=argparse.SUPPRESS,
        type=_converter(each),
        metavar="{" + ",".join(each.choices) + "}" if each.choices else each.metavar or "N",
        help=text,
        dest=each.name,
    )


def _converter(each: Setting) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            # Given several times rather than with commas, which may stand in a path.
            return each.from_file([text]) if each.many else each.from_text(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{error}: {text!r}") from None

    return convert


class _Gather(argparse.Action):
    """The values of a flag that may be given several times."""

    def __call__(
        self, _parser: object, namespace: argparse.Namespace, values: Any, _option_string: str | None = None
    ) -> None:
        setattr(namespace, self.dest, getattr(namespace, self.dest, ()) + values)
