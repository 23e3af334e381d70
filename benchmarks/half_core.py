"""Holds a process and its children to one core of the machine, or to half of it, while it runs.

By a quota where a cgroup with one can be made (version 2's `cpu.max`, version 1's `cpu.cfs_quota_us`), as containers
have it: 50 ms of each 100. Else by a second process on the same core that does nothing and never rests; the kernel
divides by threads then, so that a daemon with two at work gets more than half.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PERIOD_US: Final = 100_000
_SETTLE_SECONDS: Final = 2 * _PERIOD_US / 1e6
WAYS: Final = ("auto", "quota", "busy-loop")


class HalfCore(ABC):
    """One way to do it, for one core."""

    name: str

    def __init__(self, core: int) -> None:
        self.core = core

    def command(self, command: Sequence[str]) -> list[str]:
        """The command that runs this one there."""
        return ["taskset", "--cpu-list", str(self.core), *command]

    def hold(self, *, half: bool) -> None:
        """From now on it has half of the core, or all of it."""
        self._hold(half)
        time.sleep(_SETTLE_SECONDS)  # until nothing is owed of the period before

    @abstractmethod
    def _hold(self, half: bool) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Leaves nothing behind; what ran there has ended."""


class Quota(HalfCore):
    """A cgroup of its own."""

    def __init__(self, core: int) -> None:
        """Raises OSError where none can be made."""
        super().__init__(core)
        self.name, parent = _delegated()
        self._folder = parent / f"constraintd-half-core-{os.getpid()}"
        self._folder.mkdir()
        try:
            self._hold(False)
        except OSError:
            self.close()
            raise

    def command(self, command: Sequence[str]) -> list[str]:
        """See HalfCore."""
        enter = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        return super().command(["sh", "-c", enter, str(self._folder), *command])

    def _hold(self, half: bool) -> None:
        quota = _PERIOD_US // 2 if half else _PERIOD_US
        if self.name == "cgroup v2":
            (self._folder / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
        else:
            (self._folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (self._folder / "cpu.cfs_quota_us").write_text(str(quota))

    def close(self) -> None:
        """See HalfCore."""
        for _ in range(50):  # the kernel takes a moment to see that its processes are gone
            with suppress(OSError):
                self._folder.rmdir()
                return
            time.sleep(0.1)


class BusyLoop(HalfCore):
    """A process that wants the core, too, with equal right."""

    name = "busy loop"

    def __init__(self, core: int) -> None:
        super().__init__(core)
        self._loop = subprocess.Popen(self.command([sys.executable, "-c", "while True: pass"]))
        self._hold(False)

    def _hold(self, half: bool) -> None:
        self._loop.send_signal(signal.SIGCONT if half else signal.SIGSTOP)

    def close(self) -> None:
        """See HalfCore."""
        self._loop.kill()
        self._loop.wait()


@contextmanager
def half_core(core: int, way: str = "auto") -> Iterator[HalfCore]:
    """`way`: one of WAYS. Raises OSError for "quota" where no cgroup can be made."""
    found: HalfCore
    if way == "busy-loop":
        found = BusyLoop(core)
    else:
        try:
            found = Quota(core)
        except OSError:
            if way == "quota":
                raise
            found = BusyLoop(core)
    try:
        yield found
    finally:
        found.close()


def _delegated() -> tuple[str, Path]:
    """Which kind of cgroup has this process's CPU quota, and its folder. Raises OSError if none is there."""
    own: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own |= dict.fromkeys(controllers.split(","), path)
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        mount, (kind, _, options) = Path(before.split()[4]), after.split(" ", 2)
        if kind == "cgroup2" and "" in own:
            folder = mount / own[""].lstrip("/")
            with suppress(OSError):
                if "cpu" in (folder / "cgroup.subtree_control").read_text().split():
                    return "cgroup v2", folder
        elif kind == "cgroup" and "cpu" in own and "cpu" in options.split(","):
            return "cgroup v1", mount / own["cpu"].lstrip("/")
    raise OSError("no cgroup with a CPU quota is delegated to this process")
