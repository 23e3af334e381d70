"""How many threads a container may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from constraintd.serving.cpu_budget import cpu_budget


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def budget(folder: Path, membership: str = "0::/\n") -> int:
    (folder / "membership").write_text(membership)
    return cpu_budget(folder, folder / "membership")


def quota_1(folder: Path, quota: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.cfs_quota_us").write_text(quota)
    (folder / "cpu.cfs_period_us").write_text("100000")


@pytest.mark.parametrize(
    ("content", "expected"),
    [("max 100000", 8), ("300000 100000", 3), ("250000 100000", 2), ("50000 100000", 1), ("1600000 100000", 8)],
)
def test_a_quota_of_cgroup_2_bounds_the_threads(tmp_path: Path, content: str, expected: int) -> None:
    (tmp_path / "cpu.max").write_text(content + "\n")
    assert budget(tmp_path) == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", 8), ("400000", 4)])
def test_a_quota_of_cgroup_1_bounds_the_threads(tmp_path: Path, quota: str, expected: int) -> None:
    quota_1(tmp_path / "cpu", quota)
    assert budget(tmp_path, "4:cpu,cpuacct:/\n") == expected


def test_the_quota_of_the_process_s_own_cgroup_counts_and_that_of_one_above_it(tmp_path: Path) -> None:
    inner = tmp_path / "system.slice/constraintd.service"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("400000 100000\n")
    assert budget(tmp_path, "0::/system.slice/constraintd.service\n") == 4
    (tmp_path / "system.slice/cpu.max").write_text("200000 100000\n")
    assert budget(tmp_path, "0::/system.slice/constraintd.service\n") == 2


def test_a_path_of_the_host_s_that_is_not_mounted_here_leaves_what_is(tmp_path: Path) -> None:
    quota_1(tmp_path / "cpu", "300000")
    assert budget(tmp_path, "3:cpu,cpuacct:/kubepods/burstable/pod7/abc\n") == 3


def test_a_path_that_leads_out_of_the_mount_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    mount = tmp_path / "mount"
    mount.mkdir()
    (mount / "membership").write_text("0::/../\n")
    assert cpu_budget(mount, mount / "membership") == 8


def test_without_a_cgroup_the_affinity_mask_counts(tmp_path: Path) -> None:
    assert cpu_budget(tmp_path, tmp_path / "none") == 8
