"""Setting up: a wrong Python, a full disk and a failed install each end in one line."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "tools" / "setup.py"


@pytest.fixture
def setup_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, as if it stood in an empty project."""
    spec = importlib.util.spec_from_file_location("kapsa_setup", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def test_a_wrong_python_is_one_clear_line(setup_script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2, "final", 0))
    with pytest.raises(
        SystemExit, match=r"^kapsa setup: Python 3\.9 is too old, Kapsa needs 3\.11 or newer: .*$"
    ):
        setup_script.check_python()


def test_a_full_disk_is_one_clear_line(setup_script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil._ntuple_diskusage(total=10**9, used=10**9 - 5_000_000, free=5_000_000)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(SystemExit, match=r"^kapsa setup: 4 MB are free under .* needs 700 MB: .*$"):
        setup_script.check_disk()


def test_a_failed_install_is_one_clear_line_with_the_whole_output_beside_it(
    setup_script: ModuleType, tmp_path: Path
) -> None:
    command = [
        sys.executable,
        "-c",
        "print('much'); print('ERROR: No matching distribution'); raise SystemExit(1)",
    ]
    with pytest.raises(
        SystemExit, match=r"^kapsa setup: installing failed: ERROR: No matching distribution .*$"
    ):
        setup_script.run("installing", command)
    assert (tmp_path / ".setup.log").read_text().startswith("much\n")


def test_a_missing_environment_is_not_this_python(setup_script: ModuleType, tmp_path: Path) -> None:
    assert not setup_script.runs_this_python(tmp_path / "bin" / "python")
    assert setup_script.runs_this_python(Path(sys.executable))
