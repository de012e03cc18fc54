"""Logging in: the file that is stored, its mode, and what is refused."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kapsa.cli.fleet.client.profile import Profile, check_server, check_token
from kapsa.cli.target import TargetError
from tests.cli.fleet.terminal import Terminal
from tests.fleet.api.harness import token


def test_a_login_is_stored_for_its_user_only_and_forgotten_by_logout(manager: str, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "new" / "fleet.json")
    secret = token("maria", "Operator")
    printed = terminal.run("login", manager, stdin=f"{secret}\n")
    assert printed.out.startswith(f"logged in to {manager} as maria (Operator), until ")
    assert secret not in printed.out + printed.err
    assert stat.S_IMODE(terminal.login.stat().st_mode) == 0o600
    assert stat.S_IMODE(terminal.login.parent.stat().st_mode) & 0o077 == 0
    assert json.loads(terminal.login.read_text()) == {"server": manager, "token": secret}
    assert json.loads(terminal.succeed("whoami", "-o", "json"))["roles"] == ["Operator"]
    terminal.succeed("logout")
    assert not terminal.login.exists()
    assert "kapsa fleet login URL" in terminal.fail("whoami")


def test_a_token_is_read_from_a_file(manager: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{token('maria', 'Viewer')}\n")
    terminal = Terminal(tmp_path / "fleet.json")
    assert "as maria (Viewer)" in terminal.succeed("login", manager, "--token-file", str(file))
    line = terminal.fail("login", manager, "--token-file", str(tmp_path / "none"))
    assert "the token cannot be read: No such file or directory" in line


def test_a_token_is_sent_unencrypted_to_another_machine_only_if_that_is_accepted(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "fleet.json")
    address = "http://0.0.0.0:1"  # this machine, but not by an address of the loopback
    assert "add --plain-http" in terminal.fail("login", address, stdin="a.b.c")
    assert f"no answer from the manager at {address}" in terminal.fail(
        "login", address, "--plain-http", stdin="a.b.c"
    )


def test_a_login_that_others_may_read_is_not_used(ada: Terminal) -> None:
    ada.login.chmod(0o644)
    assert "is open to other users (mode 644)" in ada.fail("whoami")


def test_a_token_that_the_manager_refuses_is_not_stored(manager: str, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "fleet.json")
    line = terminal.fail("login", manager, stdin=token("maria", "Admin", exp=1))
    assert "was refused (401)" in line
    assert "kapsa fleet login" in line
    assert not terminal.login.exists()


def test_an_address_without_a_manager_is_reported_with_what_to_check(tmp_path: Path) -> None:
    line = Terminal(tmp_path / "fleet.json").fail("login", "http://127.0.0.1:1", stdin="a.b.c")
    assert "no answer from the manager at http://127.0.0.1:1" in line
    assert "kapsa fleet serve" in line


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("http://fleet.example.com", "would carry your token unencrypted"),
        ("ftp://fleet.example.com", "is not the address of a manager"),
        ("https://", "is not the address of a manager"),
        ("https://[::1", "is not the address of a manager"),
        ("https://ada:pw@fleet.example.com", "has no user"),
        ("https://fleet.example.com/?a=b", "has no user, query or fragment"),
    ],
)
def test_an_address_that_would_leak_the_token_or_means_nothing_is_refused(address: str, why: str) -> None:
    with pytest.raises(TargetError, match=why):
        check_server(address, plain_http=False)


def test_an_address_is_stored_in_its_usual_form() -> None:
    assert check_server("https://fleet.example.com/api/v1/", plain_http=False) == "https://fleet.example.com"
    assert check_server("http://[::1]:8070/", plain_http=False) == "http://[::1]:8070"
    assert check_server("http://fleet.lan", plain_http=True) == "http://fleet.lan"


@pytest.mark.parametrize("text", ["", " \n", "a b", "a\x1bb", "é", "x" * 9000], ids=ascii)
def test_what_cannot_be_a_token_is_refused_before_it_is_sent(text: str) -> None:
    with pytest.raises(TargetError):
        check_token(text)


def test_a_profile_never_shows_its_token() -> None:
    assert "secret" not in repr(Profile("https://fleet.example.com", "secret"))


def test_a_viewer_is_told_to_look_at_their_roles_when_refused(person: Callable[..., Terminal]) -> None:
    line = person("vera", "Viewer").fail("operators", "delete", "widget", "--yes")
    assert "was refused (403)" in line
    assert "`kapsa fleet whoami` shows your roles" in line
