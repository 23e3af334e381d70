"""Grammars that were made to hurt: a corpus of every kind, generated, and what a daemon answers to each.

`python -m tests.fault.hostile_grammars` starts a daemon, sends it all of them and prints the verdict table; `--list`
names them. Deterministic: the same corpus every time.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.fault import hostile_schemas, hostile_texts
from tests.fault.hostile import Hostile

_SOURCES = (
    *(hostile_schemas.deep_schemas, hostile_schemas.wide_schemas),
    *(hostile_schemas.references, hostile_schemas.bad_schemas),
    *(hostile_texts.regexes, hostile_texts.larks, hostile_texts.choices, hostile_texts.gbnfs),
    hostile_texts.structural_tags,
)


def corpus() -> list[Hostile]:
    """All of them."""
    return [Hostile("any object", "json_object", ()), *(hostile for source in _SOURCES for hostile in source())]


def main() -> int:
    """Prints the corpus, or the verdict table of a daemon that is sent all of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.fault.hostile_grammars", description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the grammars and end")
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose kind or name has this in it")
    parser.add_argument("--address", metavar="ADDRESS", help="attack this daemon, a Unix socket, instead of an own one")
    chosen = parser.parse_args()
    found = [hostile for hostile in corpus() if chosen.only in f"{hostile.kind} {hostile.name}"]
    if chosen.list:
        for hostile in found:
            print(f"{hostile.kind:12} {sum(map(len, hostile.texts)):>9}  {hostile.name}")
        print(f"{len(found)} in all: {dict(Counter(hostile.kind for hostile in found))}")
        return 0
    from tests.fault.attack import attack_on, attacked_daemon, verdict_table

    with attacked_daemon() if chosen.address is None else attack_on(chosen.address) as attack:
        print(verdict_table(attack.send(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
