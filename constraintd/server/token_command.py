"""`constraintd token`: makes a bearer token."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from constraintd.serving.settings import BadConfig
from constraintd.serving.tokens import TokensFile, new_token, time_of


def run_token(options: argparse.Namespace) -> int:
    """Prints a new token, and its line unless it goes into a file."""
    until = None
    if options.until is not None:
        try:
            until = time_of(options.until)
        except ValueError:
            return _complain(f"--until {options.until}: expected a date or time such as 2027-01-31T12:00:00Z")
        if until <= time.time():
            return _complain(f"--until {options.until} has passed; nobody could use the token")
    try:
        text, token = new_token(options.name, until)
    except ValueError as error:
        return _complain(str(error))
    if options.append is None:
        print(f"token: {text}\nline:  {token.line()}")
        return 0
    try:
        _append(Path(options.append), token.line())
    except (OSError, BadConfig) as error:
        return _complain(str(error))
    print(text)
    return 0


def _append(path: Path, line: str) -> None:
    """Raises BadConfig for a file that has that name already, or could not be used by a server as it is."""
    before = path.read_text() if path.exists() else ""
    if before.strip():
        TokensFile(path)
        if any(each.split()[:1] == line.split()[:1] for each in before.splitlines()):
            raise BadConfig(f"{path}: {line.split()[0]} has a token there already; remove its line or choose a name")
    with path.open("a") as file:
        file.write(("\n" if before and not before.endswith("\n") else "") + line + "\n")


def _complain(message: str) -> int:
    print(f"constraintd: {message}", file=sys.stderr)
    return 1
