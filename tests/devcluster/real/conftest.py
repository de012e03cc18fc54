"""A control plane of stand-ins: its directory where a test can look, and executables that do next to nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kapsa.devcluster.real import supervisor
from kapsa.devcluster.real.components import ALL_COMPONENTS
from tests.devcluster.real.process_watch import is_empty, program


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the cluster makes its directory; empty again in the end, whatever happened."""
    directory = tmp_path / "scratch"
    directory.mkdir()
    monkeypatch.setattr(supervisor, "scratch_directory", lambda: directory)
    yield directory
    assert is_empty(directory)


@pytest.fixture
def binaries(tmp_path: Path) -> dict[str, Path]:
    """Executables that start and do nothing."""
    return {name: program(tmp_path / "bin" / name, "#!/bin/sh\nexec sleep 600\n") for name in ALL_COMPONENTS}
