"""Secrets whose data keys Vault wraps: versions, rotation, outages, and the way there and back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import insert, select
from structlog.testing import capture_logs

from kapsa.adapters.http.client import GuardedHttpClient, HttpResponse
from kapsa.adapters.testing.vault_server import VaultServer
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.tables.foundation import internal_secret
from kapsa.fleet.infrastructure.vault.encryption_keys import KeyRingError, new_key_text
from kapsa.fleet.infrastructure.vault.envelope_vault import EnvelopeVault
from kapsa.fleet.infrastructure.vault.rotation import check_keys, rewrap_all, secrets_by_key
from kapsa.fleet.infrastructure.vault.transit_api import TransitAddress, TransitApi
from kapsa.fleet.infrastructure.vault.transit_keys import KEPT_SECONDS, TransitKeyWrapper
from kapsa.fleet.orchestrator.ports.vault import SealedSecret, VaultError, VaultUnavailable
from kapsa.fleet.server.keys import open_keys, open_vault
from kapsa.fleet.settings import FleetSettings

PAGE = Path(__file__).parents[4] / "docs" / "fleet" / "running.md"
SECRET = b"users: [{token: planted-secret}]"
ROW = ("kubeconfig", "internal_secret", "a", 1)
FIRST, SECOND = "vault:transit/fleet:v1", "vault:transit/fleet:v2"


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server() -> Iterator[VaultServer]:
    with VaultServer() as server:
        yield server


@pytest.fixture
async def client() -> AsyncIterator[GuardedHttpClient]:
    client = GuardedHttpClient(address_guard=None, timeout=5.0)
    yield client
    await client.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def vault_on(
    client: GuardedHttpClient, server: VaultServer, clock: Clock | None = None, **changes: Any
) -> EnvelopeVault:
    address = TransitAddress(server.url, "transit", "fleet", token=server.token)
    address = msgspec.structs.replace(address, **changes)
    clock = clock or Clock()
    api = TransitApi(client, address, monotonic=clock)
    return EnvelopeVault(TransitKeyWrapper(api, address.mount, address.key, monotonic=clock))


def settings_for(server: VaultServer, database: Database, **changes: Any) -> FleetSettings:
    settings = FleetSettings(
        database_url=database.url.render_as_string(hide_password=False),
        vault_address=server.url,
        vault_transit_key="fleet",
        vault_token=server.token,
    )
    return msgspec.structs.replace(settings, **changes)


async def store(database: Database, vault: EnvelopeVault, name: str) -> None:
    sealed = await vault.seal("kubeconfig", "internal_secret", name, 1, name.encode())
    async with database.transaction() as connection:
        await connection.execute(insert(internal_secret).values(name=name, value=sealed))


async def load(database: Database, vault: EnvelopeVault, name: str) -> bytes:
    async with database.transaction() as connection:
        query = select(internal_secret.c.value).where(internal_secret.c.name == name)
        sealed: SealedSecret = (await connection.execute(query)).scalar_one()
    return await vault.open(sealed, "kubeconfig", "internal_secret", name, 1)


async def test_a_secret_goes_through_the_database_and_its_content_never_to_vault(
    server: VaultServer, client: GuardedHttpClient, database: Database
) -> None:
    await store(database, vault_on(client, server), "planted-secret")
    assert await load(database, vault_on(client, server), "planted-secret") == b"planted-secret"
    assert server.actions() == ["encrypt", "decrypt"]
    assert [len(plain) for plain in server.plaintexts] == [32, 32]
    assert all(request.headers["x-vault-request"] == "true" for request in server.requests)


async def test_a_secret_does_not_open_for_another_row(server: VaultServer, client: GuardedHttpClient) -> None:
    vault = vault_on(client, server)
    sealed = await vault.seal(*ROW, SECRET)
    with pytest.raises(VaultError, match="it was changed, or sealed for another row"):
        await vault.open(sealed, "kubeconfig", "internal_secret", "b", 1)


async def test_rotation_rewraps_every_data_key_inside_vault(
    server: VaultServer, client: GuardedHttpClient, database: Database
) -> None:
    vault = vault_on(client, server)
    await check_keys(database, vault)
    for name in ("a", "b"):
        await store(database, vault, name)
    server.rotate()
    await store(database, vault, "c")  # a manager that runs seals under the new version by itself
    assert await secrets_by_key(database) == {FIRST: 2, SECOND: 1}
    server.requests.clear()
    rotation = await rewrap_all(database, vault)
    assert (rotation.rewrapped, rotation.damaged, rotation.remaining) == (2, (), {})
    assert await secrets_by_key(database) == {SECOND: 3}
    assert server.actions().count("rewrap") == 2
    server.oldest = 2  # min_decryption_version: the old version is of no use any more
    fresh = vault_on(client, server)
    await check_keys(database, fresh)
    assert [await load(database, fresh, name) for name in ("a", "b", "c")] == [b"a", b"b", b"c"]


async def test_the_policy_on_the_page_grants_what_the_manager_requests_and_nothing_else(
    client: GuardedHttpClient, database: Database
) -> None:
    (policy,) = re.findall(r"```hcl\n(.*?)```", PAGE.read_text(), re.DOTALL)
    granted = re.findall(r'^path "([^"]+)" +\{ capabilities = \["(\w+)"\] \}$', policy, re.MULTILINE)
    assert len(granted) == len(policy.splitlines())
    with VaultServer(key="kapsa-fleet") as server:
        vault = vault_on(client, server, key="kapsa-fleet")
        await check_keys(database, vault)
        await store(database, vault, "a")
        assert await load(database, vault_on(client, server, key="kapsa-fleet"), "a") == b"a"
        server.rotate()
        await rewrap_all(database, vault)
        # As Vault has it: a GET needs `read`; a POST needs `update` where there is something already.
        requested = {
            (request.path.removeprefix("/v1/"), {"GET": "read", "POST": "update"}[request.method])
            for request in server.requests
        }
    assert requested == set(granted)


async def test_a_version_that_vault_no_longer_decrypts_is_named_at_the_start(
    server: VaultServer, client: GuardedHttpClient, database: Database
) -> None:
    vault = vault_on(client, server)
    await check_keys(database, vault)
    await store(database, vault, "a")
    server.rotate()
    server.oldest = 2
    with pytest.raises(KeyRingError, match=f"need the encryption key {FIRST}"):
        await check_keys(database, vault_on(client, server))
    with pytest.raises(VaultError, match=r"too old.*min_decryption_version"):
        await load(database, vault_on(client, server), "a")


async def test_a_renewed_token_is_used_without_a_restart(
    server: VaultServer, client: GuardedHttpClient, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    vault = vault_on(client, server, token="", token_file=file)
    with pytest.raises(VaultUnavailable, match=r"token for Vault in .* cannot be read: No such file"):
        await vault.refresh()
    file.write_text("vault-token\n")
    await vault.refresh()
    server.token = "another"
    with pytest.raises(
        VaultUnavailable, match=r"answered 403 to keys \(permission denied\): renew the token"
    ):
        await vault.refresh()
    file.write_text("another")
    await vault.refresh()
    assert vault.primary_key == FIRST
    file.write_text("")
    with pytest.raises(VaultUnavailable, match="has no token for Vault: write one into it"):
        await vault.refresh()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": "other"}, "there is no key transit/keys/other. Create it with .*vault write -f"),
        ({"mount": "secret"}, "no handler for route.*vault secrets enable -path=secret transit"),
    ],
    ids=["key", "mount"],
)
async def test_a_key_that_does_not_exist_is_reported_with_the_command_that_makes_it(
    server: VaultServer, client: GuardedHttpClient, changes: dict[str, str], message: str
) -> None:
    with pytest.raises(VaultError, match=message) as refused:
        await vault_on(client, server, **changes).refresh()
    assert not isinstance(refused.value, VaultUnavailable)
    assert server.token not in str(refused.value)


async def test_secrets_in_use_stay_open_while_vault_is_away_for_minutes_and_not_for_longer(
    server: VaultServer, client: GuardedHttpClient, clock: Clock
) -> None:
    vault = vault_on(client, server, clock)
    sealed = await vault.seal(*ROW, SECRET)
    server.away = True
    clock.now = KEPT_SECONDS - 1
    assert await vault.open(sealed, *ROW) == SECRET
    clock.now = KEPT_SECONDS
    with pytest.raises(VaultUnavailable, match="Is it running and reachable"):
        await vault.open(sealed, *ROW)
    server.away = False
    clock.now += 2
    assert await vault.open(sealed, *ROW) == SECRET


async def test_a_vault_that_did_not_answer_is_left_alone_for_a_moment(
    server: VaultServer, client: GuardedHttpClient, clock: Clock
) -> None:
    vault = vault_on(client, server, clock)
    server.away = True
    for _ in range(5):
        with pytest.raises(VaultUnavailable):
            await vault.seal(*ROW, SECRET)
    assert 3 <= len(server.requests) <= 6  # the client may send a request again on a fresh connection
    server.away = False
    with pytest.raises(VaultUnavailable, match="did not answer a moment ago"):
        await vault.seal(*ROW, SECRET)
    clock.now = 2.0
    await vault.seal(*ROW, SECRET)


async def test_single_answers_that_are_lost_do_not_silence_vault_for_everybody(
    server: VaultServer, client: GuardedHttpClient, clock: Clock
) -> None:
    vault = vault_on(client, server, clock)
    for _ in range(5):
        server.away = True
        with pytest.raises(VaultUnavailable):
            await vault.seal(*ROW, SECRET)
        server.away = False
        await vault.seal(*ROW, SECRET)


async def test_a_sealed_vault_is_reported_with_what_to_do(
    server: VaultServer, client: GuardedHttpClient
) -> None:
    server.sealed = True
    with pytest.raises(VaultUnavailable, match=r"answered 503 \(Vault is sealed\): unseal it"):
        await vault_on(client, server).seal(*ROW, SECRET)


@pytest.mark.parametrize(
    "change",
    [
        {"key_id": SECOND},
        {"key_id": "vault:transit/other:v1"},
        {"wrapped_key": b"vault:v1:" + b"A" * 80},
        {"wrapped_key": b"vault:v1:../../keys"},
        {"wrapped_key": b"\xff" * 90},
    ],
    ids=["version", "key", "content", "form", "bytes"],
)
async def test_a_changed_data_key_does_not_open(
    server: VaultServer, client: GuardedHttpClient, change: dict[str, Any]
) -> None:
    vault = vault_on(client, server)
    sealed = await vault.seal(*ROW, SECRET)
    with pytest.raises(VaultError):
        await vault.open(msgspec.structs.replace(sealed, **change), *ROW)


@pytest.mark.parametrize("plaintext", ["no base64", "YWJ", 5])
async def test_an_answer_that_is_not_of_the_transit_engine_is_an_outage(plaintext: Any) -> None:
    class Page:
        """A server that answers every request in the same way."""

        async def fetch(self, *_: Any, **__: Any) -> HttpResponse:
            return HttpResponse(200, {}, msgspec.json.encode({"data": {"plaintext": plaintext}}))

    address = TransitAddress("http://127.0.0.1:8200", "transit", "fleet", token="token")
    with pytest.raises(VaultUnavailable, match="its answer is not that of the transit engine"):
        await TransitApi(Page(), address).decrypt("vault:v1:AAAA")


async def test_secrets_move_from_a_key_file_to_vault_and_back(
    server: VaultServer, database: Database
) -> None:
    local = new_key_text(lambda: "local")
    before = settings_for(server, database, vault_address="", encryption_keys=local)
    both = settings_for(server, database, encryption_keys=local)
    alone = settings_for(server, database)
    back = settings_for(server, database, encryption_keys=local, vault_only_opens=True)
    async with open_vault(before) as vault:
        await check_keys(database, vault)
        await store(database, vault, "a")
    for settings, key in ((both, FIRST), (alone, FIRST), (back, "local"), (before, "local")):
        async with open_vault(settings) as vault:
            await rewrap_all(database, vault)
            assert await secrets_by_key(database) == {key: 1}
            assert await load(database, vault, "a") == b"a"


async def test_a_manager_that_starts_while_vault_is_sealed_waits_and_then_starts(
    server: VaultServer, database: Database
) -> None:
    server.sealed = True
    with capture_logs() as logs:
        start = asyncio.create_task(open_keys(settings_for(server, database), database))
        async with asyncio.timeout(120):
            while not logs:  # noqa: ASYNC110 - a log is not an event
                await asyncio.sleep(0.01)
            assert not start.done()
            server.sealed = False
            keys = await start
    assert logs[0]["event"] == "waiting for the keys in Vault"
    assert "unseal it" in logs[0]["error"]
    assert server.token not in str(logs) + repr(keys)
    await keys.close()


async def test_a_manager_with_a_wrong_name_of_the_key_does_not_wait(
    server: VaultServer, database: Database
) -> None:
    with pytest.raises(KeyRingError, match="there is no key transit/keys/typo"):
        await open_keys(settings_for(server, database, vault_transit_key="typo"), database)
