"""The askpass script prints the user name and password for one server only."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kapsa.adapters.git._secret_files import SecretFiles
from kapsa.adapters.git.address import RepositoryAddress
from kapsa.adapters.git.credentials import GitCredentials

LOGIN = GitCredentials(username="robot", password="it's a $ecret")


def answer(directory: Path, prompt: str, url: str = "https://git.example.com:8443/team/app.git") -> str:
    """Return the output of the script for a prompt of git."""
    with SecretFiles(directory) as files:
        environment = LOGIN.environment(directory, RepositoryAddress.parse(url), files)
        assert LOGIN.password not in str(environment)
        script = Path(environment["GIT_ASKPASS"])
        assert script.stat().st_mode & 0o777 == 0o700
        return subprocess.run([script, prompt], capture_output=True, text=True, check=False).stdout


def test_the_server_of_the_credentials_gets_them(tmp_path: Path) -> None:
    assert answer(tmp_path, "Username for 'https://git.example.com:8443': ") == "robot"
    assert answer(tmp_path, "Password for 'https://robot@git.example.com:8443': ") == "it's a $ecret"


@pytest.mark.parametrize(
    "prompt",
    [
        "Username for 'https://elsewhere.example.com': ",
        "Password for 'https://robot@elsewhere.example.com': ",
        "Password for 'https://robot@git.example.com': ",
        "Password for 'https://robot@git.example.com:8443.elsewhere.example.com': ",
        "Password for 'http://robot@git.example.com:8443': ",
        "Enter passphrase for key '/home/x/.ssh/id_rsa': ",
        "",
    ],
)
def test_no_other_server_gets_them(tmp_path: Path, prompt: str) -> None:
    assert answer(tmp_path, prompt) == ""


def test_a_system_without_files_in_memory_gets_private_files_that_go_with_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("os.memfd_create")
    assert answer(tmp_path, "Password for 'https://robot@git.example.com:8443': ") == "it's a $ecret"
    assert (tmp_path / "password").stat().st_mode & 0o777 == 0o600
