"""The homes of runs: private, removed with the run, and removed by the next one if the manager was killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kapsa.fleet.infrastructure.helm.private_home import private_home

KILLED = """
import os, signal
from kapsa.fleet.infrastructure.helm.private_home import private_home
with private_home() as home:
    (home / "values.json").write_text("secret")
    print(home, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_a_home_is_private_and_gone_after_the_run() -> None:
    with private_home() as home:
        (home / "values.json").write_text("secret")
        assert home.stat().st_mode & 0o777 == 0o700
    assert not home.exists()


def test_the_values_that_a_killed_manager_left_are_removed_by_the_next_run_and_no_others() -> None:
    with private_home() as in_use:
        killed = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True)
        abandoned = Path(killed.stdout.strip())
        assert (abandoned / "values.json").read_text() == "secret"
        with private_home():
            assert not abandoned.exists()
            assert in_use.exists()
