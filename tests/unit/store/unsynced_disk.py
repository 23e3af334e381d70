"""A disk in memory that forgets what was not synced when its power is lost, and fails when a test says so.

It is a SQLite VFS of the package apsw, which brings an SQLite of its own; `Disk.connect` gives connections that look
like those of the standard library. A write that was not synced before a loss of power is kept, lost, or cut at a
sector's border, each at random, without regard to the order of writes: what a drive with a cache may do.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512


class DiskFile:
    """A file's bytes as programs see them, and as they would be found after a loss of power."""

    def __init__(self) -> None:
        self.bytes = bytearray()
        self.synced = bytearray()
        self.unsynced: list[tuple[int, bytes | None]] = []  # (offset, data), or (size, None) for a truncation

    def change(self, at: int, data: bytes | None) -> None:
        _apply(self.bytes, at, data)
        self.unsynced.append((at, data))

    def sync(self) -> None:
        for at, data in self.unsynced:
            _apply(self.synced, at, data)
        self.unsynced.clear()

    def after_power_loss(self, chance: random.Random) -> bytes:
        found = bytearray(self.synced)
        for at, data in self.unsynced:
            fate = chance.choice(["kept", "lost", "cut"])
            if fate == "kept" or (fate == "cut" and data is None):
                _apply(found, at, data)
            elif fate == "cut" and data is not None:
                _apply(found, at, data[: chance.randrange(len(data) // SECTOR + 1) * SECTOR])
        return bytes(found)


class Disk(apsw.VFS):
    """Set `failure` to what every write and sync raises from now on; `watch` is called before each of them."""

    def __init__(self, name: str) -> None:
        super().__init__(name, base="", exclude={"xSetSystemCall", "xGetSystemCall", "xNextSystemCall"})
        self.files: dict[str, DiskFile] = {}
        self.failure: Callable[[], Exception] | None = None
        self.watch: Callable[[], None] = lambda: None
        self._name = name

    def connect(self, path: str) -> Any:
        """For SqliteStore(connect=...)."""
        return _Connection(apsw.Connection(path, vfs=self._name))

    def image_after_power_loss(self, seed: int) -> dict[str, bytes]:
        """What would be found on the disk if power were lost now."""
        chance = random.Random(seed)
        return {name: file.after_power_loss(chance) for name, file in self.files.items()}

    def touch(self) -> None:
        """Something is about to be written or synced."""
        self.watch()
        if self.failure is not None:
            raise self.failure()

    def xFullPathname(self, name: str) -> str:
        return name

    def xAccess(self, path: str, flags: int) -> bool:
        return path in self.files

    def xDelete(self, path: str, sync: bool) -> None:
        self.touch()
        del self.files[path]

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        filename = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        return _OpenFile(self, self.files.setdefault(filename, DiskFile()))


class _OpenFile:
    def __init__(self, disk: Disk, file: DiskFile) -> None:
        self._disk = disk
        self._file = file

    def xRead(self, amount: int, offset: int) -> bytes:
        return bytes(self._file.bytes[offset : offset + amount])

    def xWrite(self, data: Any, offset: int) -> None:
        self._disk.touch()
        self._file.change(offset, bytes(data))

    def xTruncate(self, size: int) -> None:
        self._disk.touch()
        self._file.change(size, None)

    def xSync(self, flags: int) -> None:
        self._disk.touch()
        self._file.sync()

    def xFileSize(self) -> int:
        return len(self._file.bytes)

    def xSectorSize(self) -> int:
        return SECTOR

    def xDeviceCharacteristics(self) -> int:
        return 0

    def xFileControl(self, operation: int, pointer: int) -> bool:
        return False

    def xCheckReservedLock(self) -> bool:
        return False

    def xLock(self, level: int) -> None: ...

    def xUnlock(self, level: int) -> None: ...

    def xClose(self) -> None: ...


class _Connection:
    """apsw's connection in the clothes of sqlite3's."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> _Rows:
        try:
            return _Rows(list(self._connection.execute(sql, parameters)))
        except apsw.Error as error:
            raise _as_sqlite3(error) from error

    def close(self) -> None:
        try:
            self._connection.close()
        except apsw.Error as error:
            raise _as_sqlite3(error) from error


class _Rows:
    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[Any]:
        return self._rows


def _as_sqlite3(error: apsw.Error) -> sqlite3.OperationalError:
    translated = sqlite3.OperationalError(str(error))
    translated.sqlite_errorcode = error.extendedresult
    return translated


def _apply(target: bytearray, at: int, data: bytes | None) -> None:
    if data is None:
        del target[at:]
        return
    if len(target) < at:
        target.extend(bytes(at - len(target)))
    target[at : at + len(data)] = data


def write_image(image: dict[str, bytes], folder: Path) -> Path:
    """Puts an image's files into a folder of a real disk; the path of the store's file there."""
    folder.mkdir()
    for name, contents in image.items():
        (folder / Path(name).name).write_bytes(contents)
    return folder / "sessions.db"
