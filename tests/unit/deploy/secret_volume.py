"""A Secret's volume: files that the kubelet replaces together."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path


def put_secret(volume: Path, files: Mapping[str, bytes]) -> None:
    """Puts these files into a folder, or in the place of older ones, as the kubelet does: they are links through
    `..data`, which one rename turns to the new version, so that no reader ever sees a new certificate with an old key.
    """
    version = volume / f"..{secrets.token_hex(8)}"
    version.mkdir(parents=True)
    for name, content in files.items():
        (version / name).write_bytes(content)
        if not (volume / name).is_symlink():
            (volume / name).symlink_to(f"..data/{name}")
    (volume / "..new").symlink_to(version.name)
    os.replace(volume / "..new", volume / "..data")
