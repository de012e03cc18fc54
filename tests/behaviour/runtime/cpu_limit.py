"""A CPU limit for processes of a test, as a container has one: a cgroup with a quota."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_ROOT = Path("/sys/fs/cgroup")
_PERIOD = 100_000
"""Microseconds, as the kubelet sets it."""


@contextmanager
def cpu_limit(millicores: int) -> Iterator[Path]:
    """Make a cgroup with a limit. Yield the file that takes the id of a process; skip the test if it cannot be made."""
    quota = _PERIOD * millicores // 1000
    unified = (_ROOT / "cgroup.controllers").exists()
    group = (_ROOT if unified else _ROOT / "cpu") / f"kapsa-test-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
        if unified:
            (group / "cpu.max").write_text(f"{quota} {_PERIOD}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
    except OSError as error:
        if group.exists():
            group.rmdir()
        pytest.skip(
            f"no cgroup with a CPU limit can be made here ({error}): it needs root and a writable {_ROOT}"
        )
    try:
        yield group / "cgroup.procs"
    finally:
        group.rmdir()
