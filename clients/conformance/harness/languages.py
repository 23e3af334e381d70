"""The clients that there are, and how the adapter of each is built and started."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
"""The repository's."""


@dataclass(frozen=True, slots=True)
class Language:
    """One client's adapter. Commands run in `ROOT`."""

    command: tuple[str, ...]
    built: Path | None = None
    """The file that building makes; None: there is nothing to build."""
    build: tuple[str, ...] = ()

    @property
    def is_built(self) -> bool:
        """Whether it can be started."""
        return self.built is None or self.built.exists()


_GO: Final = ROOT / "clients/go/build/conformance"
_TYPESCRIPT: Final = ROOT / "clients/typescript/build/conformance/adapter.js"

LANGUAGES: Final[Mapping[str, Language]] = {
    "python": Language((sys.executable, "-m", "clients.conformance.python_adapter")),
    "go": Language((str(_GO),), _GO, ("make", "--no-print-directory", "-C", "clients/go", "conformance")),
    "typescript": Language(
        ("node", str(_TYPESCRIPT)),
        _TYPESCRIPT,
        ("make", "--no-print-directory", "-C", "clients/typescript", "build"),
    ),
}
