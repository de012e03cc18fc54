"""The programs of the peers: which take part on this machine, and at which versions."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.__main__ import build_kube_rs
from bench.machine import versions
from bench.programs import PEERS, peer_command, rust_program
from bench.results import Run
from bench.scenarios import scenarios


@pytest.fixture
def binaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The only directory of PATH, empty at first, with no program built yet."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rust_program.cache_clear()
    yield tmp_path
    rust_program.cache_clear()


def fake_cargo(directory: Path, script: str) -> None:
    path = directory / "cargo"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def left_out(*names: str) -> list[str]:
    run = Run(date="2026-01-02", machine={}, versions={})
    build_kube_rs([scenarios()[name] for name in names], run)
    return run.left_out


def test_kube_rs_is_left_out_and_reported_without_cargo(
    binaries: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = left_out("status-writes")
    assert line.startswith("NO KUBE-RS: ")
    assert "no Rust toolchain" in line
    assert "NO KUBE-RS" in capsys.readouterr().err
    assert peer_command("kube-rs", "status") is None


def test_a_failed_build_is_reported_with_its_first_error(binaries: Path) -> None:
    fake_cargo(
        binaries, "echo '  Updating index' >&2; echo 'error: no network' >&2; echo 'Caused by' >&2; exit 101"
    )
    (line,) = left_out("owned-children")
    assert line.endswith("`cargo build` failed in bench/peers/kube-rs: error: no network")


def test_kube_rs_is_built_once_from_its_lock_file(binaries: Path) -> None:
    fake_cargo(binaries, f'echo "$@" >> {binaries}/calls')
    assert left_out("status-writes", "owned-children") == []
    command = peer_command("kube-rs", "owned")
    assert command is not None
    assert command.arguments[0].endswith("/release/kube-rs")
    assert command.arguments[1:] == ["--owned"]
    (call,) = (binaries / "calls").read_text().splitlines()
    assert call.startswith("build --release --locked ")


def test_scenarios_without_kube_rs_do_not_build_it(binaries: Path) -> None:
    assert left_out("noop", "cache") == []


def test_the_crates_of_kube_rs_are_pinned_as_its_lock_file_has_them() -> None:
    declared = tomllib.loads((PEERS / "kube-rs" / "Cargo.toml").read_text())["dependencies"]
    locked = tomllib.loads((PEERS / "kube-rs" / "Cargo.lock").read_text())["package"]
    pins = {name: one if isinstance(one, str) else one["version"] for name, one in declared.items()}
    assert {name: pin for name, pin in pins.items() if not pin.startswith("=")} == {}
    exact = {(package["name"], package["version"]) for package in locked}
    assert {(name, pin[1:]) for name, pin in pins.items()} <= exact
    assert versions()["kube-rs"] == pins["kube"][1:]
