"""Sealing, opening, and keys that are wrong, moved, missing or readable by others."""

from __future__ import annotations

import base64
import itertools
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from kapsa.fleet.infrastructure.vault.encryption_keys import (
    FileKeys,
    FixedKeys,
    KeyRing,
    KeyRingError,
    new_key_text,
)
from kapsa.fleet.infrastructure.vault.local_vault import LocalVault
from kapsa.fleet.orchestrator.ports.vault import VaultError

SECRET = b"users: [{token: planted-secret}]"
KEY = base64.b64encode(bytes(32)).decode()
ROW = ("kubeconfig", "cluster", "7", 1)


def vault_with(*texts: str) -> LocalVault:
    return LocalVault(FixedKeys(KeyRing.parse("\n".join(texts), "test")))


@given(plaintext=st.binary(max_size=2000))
async def test_a_sealed_secret_opens_for_its_own_row(plaintext: bytes) -> None:
    vault = vault_with(new_key_text())
    assert await vault.open(await vault.seal(*ROW, plaintext), *ROW) == plaintext


@pytest.mark.parametrize(
    "other",
    [
        ("token", "cluster", "7", 1),
        ("kubeconfig", "operator", "7", 1),
        ("kubeconfig", "cluster", "8", 1),
        ("kubeconfig", "cluster", "7", 2),
        ("kubeconfig", "cluste", "r7", 1),
    ],
)
async def test_a_secret_that_was_moved_does_not_open(other: tuple[str, str, str, int]) -> None:
    vault = vault_with(new_key_text())
    with pytest.raises(VaultError, match="it was changed, or sealed for another row"):
        await vault.open(await vault.seal(*ROW, SECRET), *other)


@pytest.mark.parametrize("part", ["wrapped_key", "nonce", "ciphertext"])
async def test_a_secret_with_one_changed_bit_does_not_open(part: str) -> None:
    vault = vault_with(new_key_text())
    sealed = await vault.seal(*ROW, SECRET)
    content = bytearray(getattr(sealed, part))
    content[0] ^= 1
    with pytest.raises(VaultError):
        await vault.open(msgspec.structs.replace(sealed, **{part: bytes(content)}), *ROW)


async def test_the_data_key_of_another_secret_does_not_open_it() -> None:
    vault = vault_with(new_key_text())
    first, second = await vault.seal(*ROW, SECRET), await vault.seal(*ROW, SECRET)
    with pytest.raises(VaultError):
        await vault.open(msgspec.structs.replace(first, wrapped_key=second.wrapped_key), *ROW)


async def test_no_two_secrets_share_a_data_key_or_a_nonce() -> None:
    vault = vault_with(new_key_text())
    sealed = [await vault.seal(*ROW, SECRET) for _ in range(100)]
    assert len({each.wrapped_key for each in sealed}) == len({each.nonce for each in sealed}) == 100


async def test_a_secret_under_a_key_that_is_not_loaded_names_the_key() -> None:
    old, new = "old:" + new_key_text().partition(":")[2], "new:" + new_key_text().partition(":")[2]
    sealed = await vault_with(old).seal(*ROW, SECRET)
    with pytest.raises(VaultError, match="the encryption key old is not loaded"):
        await vault_with(new).open(sealed, *ROW)


async def test_a_rewrapped_secret_opens_without_the_old_key_and_keeps_its_content_encrypted() -> None:
    old, new = new_key_text(lambda: "old"), new_key_text(lambda: "new")
    sealed = await vault_with(old).seal(*ROW, SECRET)
    again = await vault_with(new, old).rewrap(sealed)
    assert again.ciphertext == sealed.ciphertext
    assert await vault_with(new).open(again, *ROW) == SECRET


async def test_no_secret_and_no_key_is_in_a_representation_or_an_error() -> None:
    text = new_key_text()
    vault = vault_with(text)
    sealed = await vault.seal(*ROW, SECRET)
    ring = KeyRing.parse(text, "test")
    with pytest.raises(VaultError) as refused:
        await vault.open(sealed, "another", "row", "1", 1)
    shown = repr(sealed) + repr(ring) + repr(vault) + repr(refused.value)
    assert "planted-secret" not in shown
    assert text.partition(":")[2] not in shown
    assert repr(next(iter(ring.keys.values()))) not in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no encryption key"),
        ("# only a comment", "has no encryption key"),
        ("geheim", "line 1: expected ID:BASE64"),
        ("a:!!!", "line 1: key a is not valid base64"),
        ("a:" + base64.b64encode(b"x" * 16).decode(), "line 1: key a has 16 bytes, but must have 32"),
        (f"a:{KEY}\na:{KEY}", "line 2: key a appears twice"),
        (f"../a:{KEY}", "expected ID:BASE64"),
    ],
)
def test_malformed_keys_are_rejected_by_their_line(text: str, message: str) -> None:
    with pytest.raises(KeyRingError, match=message) as rejected:
        KeyRing.parse(text, "keys")
    assert "geheim" not in str(rejected.value)


@pytest.mark.parametrize("mode", [0o604, 0o660, 0o666, 0o601])
def test_a_key_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "keys"
    path.write_text(new_key_text())
    path.chmod(mode)
    with pytest.raises(KeyRingError, match=r"open to other users .*: chmod 600"):
        FileKeys(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_key_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.touch(mode=0o600)
    path.write_text(new_key_text())
    os.chown(path, 12345, 12345)
    with pytest.raises(KeyRingError, match=r"belongs to another user \(id 12345\)"):
        FileKeys(path)


def test_a_missing_key_file_is_reported_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(KeyRingError, match=r"keys cannot be read: No such file"):
        FileKeys(tmp_path / "keys")


async def test_a_changed_key_file_is_used_at_once(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.touch(mode=0o600)
    path.write_text(new_key_text(lambda: "first"))
    keys = FileKeys(path)
    vault = LocalVault(keys)
    sealed = await vault.seal(*ROW, SECRET)
    FileKeys(path).add_primary(new_key_text(lambda: "second"))
    assert (await vault.seal(*ROW, SECRET)).key_id == "second"
    assert await vault.open(sealed, *ROW) == SECRET
    FileKeys(path).remove("first")
    assert vault.key_ids == {"second"}
    assert path.stat().st_mode & 0o777 == 0o600


async def test_keys_stay_loaded_while_their_file_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.touch(mode=0o600)
    path.write_text(new_key_text())
    vault = LocalVault(FileKeys(path))
    sealed = await vault.seal(*ROW, SECRET)
    path.unlink()
    assert await vault.open(sealed, *ROW) == SECRET


@pytest.mark.parametrize("damage", ["", "first:short", "no key at all"])
async def test_a_mistake_in_the_key_file_is_logged_once_and_the_loaded_keys_stay(
    tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "keys"
    path.touch(mode=0o600)
    valid = new_key_text(lambda: "first")
    path.write_text(valid)
    vault = LocalVault(FileKeys(path))
    sealed = await vault.seal(*ROW, SECRET)
    path.write_text(damage)
    with capture_logs() as logs:
        assert await vault.open(sealed, *ROW) == SECRET
        assert vault.primary_key == "first"
    assert [entry["log_level"] for entry in logs] == ["error"]
    path.write_text(f"{new_key_text(lambda: 'second')}\n{valid}\n")
    assert vault.primary_key == "second"


def test_the_primary_key_cannot_be_removed(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.touch(mode=0o600)
    path.write_text(new_key_text(lambda: "only"))
    with pytest.raises(KeyRingError, match="only is the primary key"):
        FileKeys(path).remove("only")


def test_generated_key_ids_differ() -> None:
    ids = [new_key_text().partition(":")[0] for _ in range(3)]
    assert all(a != b for a, b in itertools.pairwise(ids))
