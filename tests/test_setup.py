"""Setting up: a wrong Python, a full disk and a failed install each end in one line."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import venv
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
        SystemExit, match=r"^kapsa setup: Python 3\.9 is too old; Kapsa needs 3\.11 or newer\. .*$"
    ):
        setup_script.check_python()


def test_a_full_disk_is_one_clear_line(setup_script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil._ntuple_diskusage(total=10**9, used=10**9 - 5_000_000, free=5_000_000)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(SystemExit, match=r"^kapsa setup: 4 MB are free under .* needs 1000 MB: .*$"):
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


def test_a_python_that_makes_no_environments_is_one_clear_line(
    setup_script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian and Ubuntu put a part of Python into a package of its own."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else find(name))
    with pytest.raises(SystemExit, match=r"^kapsa setup: .*python3\.\d+-venv.*make PYTHON=.*$"):
        setup_script.check_python()


def test_an_environment_is_used_where_it_was_made_and_nowhere_else(
    setup_script: ModuleType, tmp_path: Path
) -> None:
    assert not setup_script.is_usable(tmp_path / ".venv" / "bin" / "python")
    venv.create(tmp_path / ".venv", symlinks=True)
    library = tmp_path / ".venv" / "lib" / "python{}.{}".format(*sys.version_info[:2])
    (library / "site-packages" / "pip.py").touch()
    assert setup_script.is_usable(tmp_path / ".venv" / "bin" / "python")
    (tmp_path / "elsewhere").mkdir()
    shutil.copytree(tmp_path / ".venv", tmp_path / "elsewhere" / ".venv", symlinks=True)
    assert not setup_script.is_usable(tmp_path / "elsewhere" / ".venv" / "bin" / "python")
