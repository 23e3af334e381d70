"""How many threads this process may keep busy: the container's quota and the affinity mask, not the machine."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_budget(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Whole CPUs that this process may use, at least 1.

    The smaller of the affinity mask and the cgroup quota (version 2 `cpu.max`, version 1
    `cpu/cpu.cfs_quota_us`), the quota rounded down: a thread more than the quota makes the kernel
    stop all of them for the rest of each period.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(cgroup)
    return max(1, affinity if quota is None else min(affinity, int(quota)))


def _quota(cgroup: Path) -> float | None:
    """CPUs by quota, None where there is no limit or no cgroup to read."""
    try:
        limit, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        pass
    else:
        return None if limit == "max" else int(limit) / int(period)
    try:
        quota = int((cgroup / "cpu/cpu.cfs_quota_us").read_text())
        return quota / int((cgroup / "cpu/cpu.cfs_period_us").read_text()) if quota > 0 else None
    except (OSError, ValueError):
        return None
