"""How many threads this process may keep busy: the container's quota and the affinity mask, not the machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def cpu_budget(cgroup: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> int:
    """Whole CPUs that this process may use, at least 1.

    The smallest of the affinity mask and the quotas of the process's cgroup and of those above it (version 2 `cpu.max`,
    version 1 `cpu.cfs_quota_us`), the quota rounded down: a thread more than the quota makes the kernel stop all of
    them for the rest of each period. Inside a container the path that `membership` tells may be the host's, of which
    only the mounted end is there: what is not there does not bound.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([affinity, *map(int, _quotas(cgroup, membership))]))


def _quotas(cgroup: Path, membership: Path) -> Iterator[float]:
    """CPUs by each quota that there is."""
    paths = _paths(membership)
    for folder in _upwards(cgroup, paths.get("", "/")):
        numbers = _words(folder / "cpu.max")
        if len(numbers) == 2 and numbers[0] != "max":
            yield int(numbers[0]) / int(numbers[1])
    for folder in _upwards(cgroup / "cpu", paths.get("cpu", "/")):
        quota, period = _words(folder / "cpu.cfs_quota_us"), _words(folder / "cpu.cfs_period_us")
        if quota and period and int(quota[0]) > 0:
            yield int(quota[0]) / int(period[0])


def _paths(membership: Path) -> dict[str, str]:
    """The process's cgroup by controller; "" is that of version 2. Lines are `id:controller,controller:/path`."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return {}
    paths: dict[str, str] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    return paths


def _upwards(root: Path, path: str) -> Iterator[Path]:
    """The folder of a cgroup, and those above it up to the root."""
    folder = root / path.lstrip("/")
    while folder != root and ".." not in folder.parts:  # ".." leads to what is not mounted here
        yield folder
        folder = folder.parent
    yield root


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []
