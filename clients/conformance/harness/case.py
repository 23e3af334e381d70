"""What a case is, and where they are found."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

from clients.conformance import cases as folder

from .talk import Talk


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that every client has to do."""

    name: str
    description: str
    script: Callable[[Talk], None]
    """Talks to the adapter, and raises CaseFailed where an answer is not as it should be."""
    stages: frozenset[str] = frozenset()
    """Of the sampler: a client that lacks one has nothing to show here."""
    features: frozenset[str] = frozenset()
    """Of the client, as its adapter's hello names them: likewise."""


def case(*, stages: str = "", features: str = "") -> Callable[[Callable[[Talk], None]], Case]:
    """Makes a case of a function: its name is the case's, its docstring the description."""

    def decorate(script: Callable[[Talk], None]) -> Case:
        description = " ".join((script.__doc__ or "").split())
        assert description, f"{script.__name__} has no docstring"
        name = script.__name__.replace("_", "-")
        return Case(name, description, script, frozenset(stages.split()), frozenset(features.split()))

    return decorate


def all_cases() -> list[Case]:
    """Every case of every module of `clients.conformance.cases`, in the order in which they are written."""
    found: list[Case] = []
    for info in sorted(pkgutil.iter_modules(folder.__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{folder.__name__}.{info.name}")
        for value in vars(module).values():
            found += [each for each in (value if isinstance(value, tuple) else (value,)) if isinstance(each, Case)]
    names = [each.name for each in found]
    assert len(names) == len(set(names)), f"two cases have one name: {sorted(names)}"
    return found
