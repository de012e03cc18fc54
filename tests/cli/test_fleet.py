"""`kapsa fleet` as a person runs it: one manager in a process, and the commands next to it."""

from __future__ import annotations

import asyncio
import io
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import psycopg
import pytest
import structlog
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from sqlalchemy import text
from sqlalchemy.engine import URL

from kapsa.adapters.testing.vault_server import VaultServer
from kapsa.cli.commands import main
from kapsa.fleet.infrastructure.audit.chain import chain_key
from kapsa.fleet.infrastructure.audit.trail import PostgresAuditTrail
from kapsa.fleet.infrastructure.postgres.embedded import EmbeddedServer
from kapsa.fleet.infrastructure.vault.encryption_keys import new_key_text
from kapsa.fleet.orchestrator.ports.audit import AuditEntry
from kapsa.fleet.server.keys import open_vault
from kapsa.fleet.server.lifecycle import open_database
from kapsa.fleet.settings import FleetSettings
from kapsa.runtime.testing import background_loop
from tests.eventually import eventually
from tests.fleet.conftest import WITHOUT_DURABILITY

START = "import sys; from kapsa.cli import main; sys.argv[0] = 'kapsa'; main()"


class Result(NamedTuple):
    """The outcome of a command."""

    returncode: int
    stdout: str
    stderr: str


class Installation:
    """A data directory, and commands that use it."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        self.variables = {
            "KAPSA_FLEET_DATA_DIRECTORY": str(self.data),
            "KAPSA_FLEET_LISTEN_PORT": self.url.rpartition(":")[2],
        }

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("KAPSA_")}
        return inherited | self.variables

    def start(self) -> subprocess.Popen[bytes]:
        """Start a manager, and wait until it serves."""
        process = subprocess.Popen(
            [sys.executable, "-c", START, "fleet", "serve"],
            env=self._environment(),
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=5).close()
            except OSError:
                time.sleep(0.05)
            else:
                return process
        raise AssertionError("the manager did not start")

    def run(self, *arguments: str, **variables: str) -> Result:
        """Run a command in this process, as `kapsa fleet` does in one of its own."""
        output, errors = io.StringIO(), io.StringIO()
        code: Any = 0
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
            for name in [each for each in os.environ if each.startswith("KAPSA_")]:
                patch.delenv(name)
            for name, value in (self.variables | variables).items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["kapsa", "fleet", *arguments])
            try:
                main()
            except SystemExit as end:
                code = end.code or 0
            finally:
                structlog.reset_defaults()
        return Result(code, output.getvalue(), errors.getvalue())

    def server_pid(self) -> int:
        return int((self.data / "postgres" / "postmaster.pid").read_text().split()[0])


@pytest.fixture
def installation() -> Iterator[Installation]:
    directory = Path(tempfile.mkdtemp(prefix="kapsa-test-"))
    directory.chmod(0o711)
    installation = Installation(directory)
    yield installation
    if (installation.data / "postgres" / "postmaster.pid").exists():
        wait_for_end(installation.server_pid())
    shutil.rmtree(directory)


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 30
    while is_alive(pid):
        assert time.monotonic() < deadline, "the database outlived its manager"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.timeout(300)  # ten commands: a crowded machine needs longer than the usual limit
def test_one_manager_and_the_commands_next_to_it(installation: Installation) -> None:
    manager = installation.start()
    try:
        second = installation.run("serve")
        assert second.returncode == 1
        (line,) = [each for each in second.stderr.splitlines() if each.startswith("kapsa:")]
        assert f"is in use by process {manager.pid} on" in line

        migrated = installation.run("migrate")
        assert (migrated.returncode, "nothing to do" in migrated.stdout) == (0, True)

        token = installation.run("token", "ada", "--role", "environmentowner", "--environment", "production")
        key = load_pem_private_key((installation.data / "signing.key").read_bytes(), None)
        claims = jwt.decode(token.stdout.strip(), key.public_key(), ["EdDSA"], audience="kapsa-fleet")  # type: ignore[arg-type]
        assert (claims["sub"], claims["roles"]) == ("ada", ["EnvironmentOwner:Production"])
        token = installation.run("token", "ada", "--email", "ada@example.com", "--hours", "0.5")
        claims = jwt.decode(token.stdout.strip(), key.public_key(), ["EdDSA"], audience="kapsa-fleet")  # type: ignore[arg-type]
        assert (claims["email"], claims["exp"] - claims["iat"]) == ("ada@example.com", 1800)

        rotated = installation.run("keys", "rotate")
        assert (rotated.returncode, rotated.stdout.split()[0]) == (0, "1")
        primary, old = [line.split()[0] for line in installation.run("keys", "list").stdout.splitlines()]
        assert installation.run("keys", "remove", primary).returncode == 1
        assert installation.run("keys", "remove", old).returncode == 0

        verified = installation.run("audit", "verify")
        assert (verified.returncode, verified.stdout.splitlines()[0]) == (
            0,
            "whole: 0 links, 0 erased, 0 not sealed yet",
        )
        assert installation.run("audit", "verify", "--anchor", "7:00").returncode == 1

        database = installation.server_pid()
        manager.kill()
        manager.wait()
        wait_for_end(database)
    finally:
        manager.kill()
        manager.wait()


@pytest.mark.timeout(300)
def test_rows_of_the_audit_log_that_were_tampered_with_are_reported_one_by_one(
    installation: Installation,
) -> None:
    manager = installation.start()
    try:
        asyncio.run(record_entries(installation.data, 4))
        whole = installation.run("audit", "verify")
        assert (whole.returncode, whole.stderr) == (0, "")
        assert whole.stdout.startswith("whole: 4 links, 0 erased, 0 not sealed yet")
        asyncio.run(
            execute(
                installation.data,
                "UPDATE fleet.audit_content SET payload = '{}' WHERE entry_id = 1",
                "UPDATE fleet.audit_entry SET object_id = 'another' WHERE id = 2",
                "DELETE FROM fleet.audit_entry WHERE id = 3",
            )
        )
        verified = installation.run("audit", "verify")
        assert verified.returncode == 1
        assert verified.stderr.splitlines() == [
            "actor or payload of entry 1: changed",
            "entry 2, or its link 2: changed",
            "entry 3: missing",
        ]
        assert verified.stdout.startswith("3 problems in 4 links, 0 erased, 0 not sealed yet")
    finally:
        manager.kill()
        manager.wait()


async def record_entries(data: Path, count: int) -> None:
    """Record audit entries as a replica on the same database does, and wait until the manager has sealed them."""
    settings = FleetSettings(data_directory=data)
    async with open_database(settings, join=True) as (database, _), open_vault(settings) as vault:
        trail = PostgresAuditTrail(await chain_key(database, vault))
        for number in range(1, count + 1):
            async with database.transaction() as connection:
                entry = AuditEntry(
                    actor="ada",
                    action="cluster.register",
                    object_kind="cluster",
                    object_id=str(number),
                    payload={"name": f"prod-{number}"},
                )
                await trail.record(connection, entry)

        async def sealed() -> int:
            async with database.transaction() as connection:
                return int(
                    (await connection.execute(text("SELECT count(*) FROM fleet.audit_seal"))).scalar_one()
                )

        await eventually(sealed, lambda links: links == count, "sealed entries")


async def execute(data: Path, *statements: str) -> None:
    settings = FleetSettings(data_directory=data)
    async with open_database(settings, join=True) as (database, _), database.transaction() as connection:
        for each in statements:
            assert (await connection.execute(text(each))).rowcount == 1


PASSWORD = "planted-database-password"


@pytest.fixture
def tcp_database() -> Iterator[URL]:
    """A database on TCP with a password, of a role that owns it and nothing else."""
    directory = Path(tempfile.mkdtemp(prefix="kapsa-test-"))
    directory.chmod(0o711)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = EmbeddedServer(
        directory / "data",
        settings={**WITHOUT_DURABILITY, "listen_addresses": "127.0.0.1", "port": str(port)},
    )
    with background_loop() as wait:
        wait(server.start())
        try:
            where = server.url("postgres").query
            with psycopg.connect(
                host=str(where["host"]), port=port, user="kapsa", dbname="postgres", autocommit=True
            ) as superuser:
                superuser.execute(f"CREATE ROLE manager LOGIN PASSWORD '{PASSWORD}'")
                superuser.execute("CREATE DATABASE managed OWNER manager")
                with (directory / "data" / "postgres" / "pg_hba.conf").open("a") as rules:
                    rules.write("host managed manager 127.0.0.1/32 scram-sha-256\n")
                superuser.execute("SELECT pg_reload_conf()")
            yield URL.create("postgresql", "manager", PASSWORD, "127.0.0.1", port, "managed")
        finally:
            wait(server.stop())
            shutil.rmtree(directory)


@pytest.mark.timeout(300)
def test_a_manager_on_a_database_with_a_password_over_tcp_and_a_wrong_password_is_one_line(
    installation: Installation, tcp_database: URL
) -> None:
    installation.variables["KAPSA_DATABASE_URL"] = tcp_database.render_as_string(hide_password=False)
    installation.variables["KAPSA_FLEET_ENCRYPTION_KEYS"] = new_key_text()
    manager = installation.start()
    try:
        assert not (installation.data / "postgres").exists()
        query = (
            "SELECT DISTINCT client_addr::text FROM pg_stat_activity WHERE application_name = 'kapsa-fleet'"
        )
        with psycopg.connect(installation.variables["KAPSA_DATABASE_URL"]) as connection:
            assert connection.execute(query).fetchall() == [("127.0.0.1/32",)]
        assert installation.run("audit", "verify").stdout.startswith("whole: 0 links")
        for command in ("serve", "migrate"):
            wrong = tcp_database.set(password="wrong-" + PASSWORD).render_as_string(hide_password=False)
            refused = installation.run(command, KAPSA_DATABASE_URL=wrong)
            assert refused.returncode == 1
            (line,) = refused.stderr.splitlines()
            assert line.startswith("kapsa: the database managed at 127.0.0.1 cannot be used: ")
            assert 'password authentication failed for user "manager"' in line
            assert PASSWORD not in refused.stderr + refused.stdout
    finally:
        manager.kill()
        manager.wait()


@pytest.mark.long
def test_commands_without_a_manager_start_the_database_themselves(installation: Installation) -> None:
    migrated = installation.run("migrate")
    assert migrated.returncode == 0, migrated.stderr
    assert "applied 0001_foundation" in migrated.stdout
    owner = pwd.getpwuid((installation.data / "postgres").stat().st_uid).pw_name
    assert owner == ("nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name)


@pytest.mark.parametrize(
    ("arguments", "variables", "line"),
    [
        (["serve"], {"KAPSA_FLEET_LISTEN_PORT": "x"}, "kapsa: KAPSA_FLEET_LISTEN_PORT is 'x', but must be"),
        (["serve"], {"KAPSA_DATABASE_URL": "mysql://u:geheim@h/d"}, "kapsa: the address of the database starts with mysql://"),
        (["token"], {}, "kapsa: the signing key"),
        (["token", "--role", "King"], {}, "kapsa: --role King is not one of Admin, Operator, Viewer, EnvironmentOwner"),
        (
            ["token"],
            {"KAPSA_FLEET_JWT_ISSUER": "https://id.example.com", "KAPSA_FLEET_JWT_JWKS_URL": "https://id.example.com/keys"},
            "kapsa: tokens are issued by https://id.example.com",
        ),
        (["keys", "rotate"], {"KAPSA_FLEET_ENCRYPTION_KEYS": "a:" + "A" * 43 + "="}, "kapsa: the keys are in KAPSA_FLEET_ENCRYPTION_KEYS"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(
    installation: Installation, arguments: list[str], variables: dict[str, str], line: str
) -> None:
    result = installation.run(*arguments, **variables)
    assert result.returncode == 1
    assert result.stderr.startswith(line)
    assert len(result.stderr.splitlines()) == 1
    assert "geheim" not in result.stderr


def test_the_help_of_kapsa_loads_nothing_of_the_fleet() -> None:
    script = (
        "import sys\nfrom kapsa.cli import main\nsys.argv = ['kapsa', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "loaded = {'sqlalchemy', 'litestar', 'alembic', 'uvicorn', 'kapsa.fleet'} & set(sys.modules)\n"
        "sys.exit(f'loaded {loaded}' if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "fleet" in done.stdout


def test_every_setting_is_listed(installation: Installation) -> None:
    listed = installation.run("settings").stdout
    assert "KAPSA_DATABASE_URL=" in listed
    assert "KAPSA_FLEET_LISTEN_PORT=8070" in listed


@pytest.mark.sampled(1)
@pytest.mark.parametrize("command", [("audit", "verify"), ("keys", "list")], ids=" ".join)
def test_a_command_on_an_empty_directory_says_what_prepares_it_and_does_not_spoil_it(
    installation: Installation, command: tuple[str, ...]
) -> None:
    result = installation.run(*command)
    assert result.returncode == 1
    assert "is empty: `kapsa fleet serve` or `kapsa fleet migrate` prepares it" in result.stderr
    assert installation.run("migrate").returncode == 0
    assert installation.run("audit", "verify").stdout.startswith("whole: 0 links")


@pytest.mark.long
@pytest.mark.timeout(300)  # eight commands, each with a database of its own
def test_keys_move_to_vault_and_a_sealed_vault_is_one_line(installation: Installation) -> None:
    with VaultServer() as vault:
        variables = {
            "KAPSA_FLEET_VAULT_ADDRESS": vault.url,
            "KAPSA_FLEET_VAULT_TRANSIT_KEY": "fleet",
            "KAPSA_FLEET_VAULT_TOKEN": vault.token,
        }
        assert installation.run("migrate").returncode == 0
        assert installation.run("audit", "verify").returncode == 0  # makes a secret, under a generated key

        refused = installation.run("keys", "rotate", **variables)
        assert "run `vault write -f transit/keys/fleet/rotate`, and this with --rewrap-only" in refused.stderr
        moved = installation.run("keys", "rotate", "--rewrap-only", **variables)
        assert (moved.returncode, moved.stdout) == (0, "1 secrets moved to vault:transit/fleet:v1\n")
        vault.rotate()
        listed = installation.run("keys", "list", **variables).stdout.splitlines()
        assert listed[0] == "vault:transit/fleet:v2  primary  0 secrets"
        assert "vault:transit/fleet:v1  loaded  1 secrets" in listed
        assert installation.run("audit", "verify", **variables).stdout.startswith("whole: ")

        vault.sealed = True
        away = installation.run("audit", "verify", **variables)
        assert away.returncode == 1
        (line,) = away.stderr.splitlines()
        assert line.startswith(f"kapsa: Vault at {vault.url} answered 503 (Vault is sealed): unseal it")
