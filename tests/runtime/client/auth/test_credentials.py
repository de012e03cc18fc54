"""Credentials in files that change."""

from pathlib import Path

import pytest

from kapsa.runtime.client.auth.credentials import DeclaredCredentials, RereadFile
from kapsa.runtime.errors import CredentialError
from tests.runtime.client.clock import ManualClock


async def test_a_token_file_is_read_again_at_most_every_minute(tmp_path: Path) -> None:
    clock = ManualClock()
    path = tmp_path / "token"
    path.write_text("one")
    source = DeclaredCredentials(token_file=RereadFile(path, name="token", clock=clock))
    first = await source.current()
    path.write_text("two")
    clock.ahead = 59
    assert await source.current() is first
    clock.ahead = 61
    assert (await source.current()).headers == (("Authorization", "Bearer two"),)


async def test_the_last_token_stays_in_use_when_its_file_disappears(tmp_path: Path) -> None:
    clock = ManualClock()
    path = tmp_path / "token"
    path.write_text("one")
    source = DeclaredCredentials(token_file=RereadFile(path, name="token", clock=clock))
    first = await source.current()
    path.unlink()
    clock.ahead = 120
    assert await source.current() is first


async def test_the_error_for_a_missing_token_file_names_it_unless_there_is_a_token(tmp_path: Path) -> None:
    file = RereadFile(tmp_path / "token", name="user.tokenFile", clock=ManualClock())
    with pytest.raises(CredentialError, match=r"user.tokenFile: cannot read .*token: No such file"):
        await DeclaredCredentials(token_file=file).current()
    fallback = await DeclaredCredentials(token="given", token_file=file).current()
    assert fallback.headers == (("Authorization", "Bearer given"),)
