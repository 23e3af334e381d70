"""How many threads a container may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from constraintd_runner.model.cpu_budget import cpu_budget


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.parametrize(
    ("content", "expected"),
    [("max 100000", 8), ("300000 100000", 3), ("250000 100000", 2), ("50000 100000", 1), ("1600000 100000", 8)],
)
def test_a_quota_of_cgroup_2_bounds_the_threads(tmp_path: Path, content: str, expected: int) -> None:
    (tmp_path / "cpu.max").write_text(content + "\n")
    assert cpu_budget(tmp_path) == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", 8), ("400000", 4)])
def test_a_quota_of_cgroup_1_bounds_the_threads(tmp_path: Path, quota: str, expected: int) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000")
    assert cpu_budget(tmp_path) == expected


def test_without_a_cgroup_the_affinity_mask_counts(tmp_path: Path) -> None:
    assert cpu_budget(tmp_path) == 8
