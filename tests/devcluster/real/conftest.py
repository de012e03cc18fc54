"""Fixtures for a fake control plane: a directory that a test can inspect, and executables that only sleep."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kapsa.devcluster.real import supervisor
from kapsa.devcluster.real.components import ALL_COMPONENTS
from tests.devcluster.real.process_watch import is_empty, program


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The parent of the cluster's directory; it must be empty at the end."""
    directory = tmp_path / "scratch"
    directory.mkdir()
    monkeypatch.setattr(supervisor, "scratch_directory", lambda: directory)
    yield directory
    assert is_empty(directory)


@pytest.fixture
def binaries(tmp_path: Path) -> dict[str, Path]:
    """Fake executables that start and do nothing."""
    return {name: program(tmp_path / "bin" / name, "#!/bin/sh\nexec sleep 600\n") for name in ALL_COMPONENTS}
