"""`python -m clients.conformance [--language NAME] [--case NAME] [--build] [--list]`, from the repository's root."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from contextlib import ExitStack

from .harness.case import Case, all_cases
from .harness.languages import LANGUAGES, ROOT
from .harness.places import Places
from .harness.run import FAIL, LACKS, OK, Seat, Verdict

COLUMN = 12


def main() -> int:
    """Runs what is asked for; gives the exit status."""
    cases = all_cases()
    options = _options(cases)
    if options.list:
        for case in cases:
            print(f"{case.name}\n    {case.description}")
        return 0
    chosen = [case for case in cases if not options.case or case.name in options.case]
    languages = list(dict.fromkeys(options.language or LANGUAGES))
    for name in languages:
        if options.build and LANGUAGES[name].build:
            subprocess.run(LANGUAGES[name].build, cwd=ROOT, check=True)
    for name in [name for name in languages if not LANGUAGES[name].is_built]:
        if options.language:
            print(f"{name} is not built: run with --build, or {' '.join(LANGUAGES[name].build)}", file=sys.stderr)
            return 2
        print(f"{name} is not built, and left out; --build builds it", file=sys.stderr)
        languages.remove(name)
    return _run(chosen, languages)


def _options(cases: list[Case]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m clients.conformance",
        description="Runs the conformance cases with every client that is built, and prints language by case: "
        f"{OK}, {FAIL}, or {LACKS} where a client does not have what the case is about. Exit status 1 for any {FAIL}.",
    )
    names = f"one of {', '.join(LANGUAGES)}; may be given again"
    parser.add_argument("--language", choices=list(LANGUAGES), metavar="NAME", action="append", help=names)
    known = [case.name for case in cases]
    parser.add_argument("--case", choices=known, metavar="NAME", action="append", help="see --list; likewise")
    parser.add_argument("--build", action="store_true", help="build the adapters first")
    parser.add_argument("--list", action="store_true", help="name and describe the cases, and end")
    return parser.parse_args()


def _run(cases: list[Case], languages: list[str]) -> int:
    """A row a case, as soon as it is there; then what failed, and why."""
    width = max(len(case.name) for case in cases)
    print(f"{'':{width}}" + "".join(f"  {name:{COLUMN}}" for name in languages))
    failures: list[tuple[Case, str, Verdict]] = []
    counts = {name: {OK: 0, FAIL: 0, LACKS: 0} for name in languages}
    began = time.monotonic()
    with Places() as places, ExitStack() as stack:
        seats = {name: stack.enter_context(Seat(LANGUAGES[name], places)) for name in languages}
        for case in cases:
            print(f"{case.name:{width}}", end="", flush=True)
            for name, seat in seats.items():
                verdict = seat.run(case)
                counts[name][verdict.word] += 1
                if verdict.word == FAIL:
                    failures.append((case, name, verdict))
                print(f"  {verdict.word:{COLUMN}}", end="", flush=True)
            print()
    for case, name, verdict in failures:
        print(f"\n{name} failed {case.name}: {case.description}\n    {verdict.why}")
    print(f"\n{len(cases)} cases in {time.monotonic() - began:.0f} s")
    for name, count in counts.items():
        print(f"{name:{COLUMN}} {count[OK]} {OK}, {count[FAIL]} {FAIL}, {count[LACKS]} {LACKS}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
