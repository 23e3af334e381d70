"""Reads a Dockerfile: the subset of its language that deploy/docker keeps to, and nothing is guessed beyond it."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

_KNOWN = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "LABEL", "RUN", "USER", "VOLUME", "WORKDIR"}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, with its flags taken off."""

    line: int
    name: str
    flags: dict[str, str]
    text: str

    @property
    def words(self) -> list[str]:
        """Its words: a JSON list as it stands, everything else by the shell's rules."""
        return [str(word) for word in json.loads(self.text)] if self.text.startswith("[") else shlex.split(self.text)

    @property
    def pairs(self) -> dict[str, str]:
        """NAME=VALUE pairs."""
        return dict(word.split("=", 1) for word in self.words)


@dataclass(frozen=True, slots=True)
class Stage:
    """What stands from one FROM to the next."""

    image: str
    name: str
    instructions: tuple[Instruction, ...]

    def all_of(self, name: str) -> list[Instruction]:
        """Its instructions of that name."""
        return [each for each in self.instructions if each.name == name]

    def only(self, name: str) -> Instruction:
        """The one instruction of that name. Raises ValueError if there is none, or more than one."""
        (found,) = self.all_of(name)
        return found


def read_dockerfile(path: Path) -> tuple[Stage, ...]:
    """Its stages, ARGs filled in by their defaults. Raises ValueError, with the line, for what is not known here."""
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for each in _instructions(path):
        if each.name not in _KNOWN:
            raise ValueError(f"{path.name}:{each.line}: {each.name} is not an instruction that these images use")
        if each.name == "ARG":
            arguments |= each.pairs
        elif each.name == "FROM":
            image, *rest = _filled(each.text, arguments).split()
            stages.append(Stage(image, rest[1] if rest else "", ()))
        else:
            last = stages.pop()
            stages.append(Stage(last.image, last.name, (*last.instructions, each)))
    return tuple(stages)


def _filled(text: str, arguments: dict[str, str]) -> str:
    """A text with its ${NAME}s replaced."""
    return re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], text)


def _instructions(path: Path) -> list[Instruction]:
    found: list[Instruction] = []
    begun, text = 0, ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("#") or (not line.strip() and not text):
            continue
        begun = begun or number
        text += line.rstrip()
        if text.endswith("\\"):
            text = text[:-1]
            continue
        name, _, rest = text.partition(" ")
        flags: dict[str, str] = {}
        while match := re.match(r"\s*--(\w+)=(\S+)\s+", rest):
            flags[match[1]] = match[2]
            rest = rest[match.end() :]
        found.append(Instruction(begun, name, flags, rest.strip()))
        begun, text = 0, ""
    if text:
        raise ValueError(f"{path.name}:{begun}: the file ends in the middle of an instruction")
    return found
