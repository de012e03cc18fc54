"""A manager that starts with the variables and files that the chart gives it."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from sqlalchemy.engine import URL

from kapsa.fleet.infrastructure.vault.encryption_keys import new_key_text
from kapsa.fleet.server.lifecycle import FleetServer
from kapsa.fleet.settings import FleetSettings
from kapsa.runtime.testing import issue_certificate, make_authority
from tests.behaviour.kapsa_chart import FLEET_VALUES, only, rendered

VALUES = {
    "operator": {"enabled": False},
    "fleet": {
        **FLEET_VALUES,
        "mail": {"secretName": "fleet-mail"},
        "webhooks": {"secretName": "fleet-webhooks"},
        "settings": {"SMTP_HOST": "127.0.0.1", "WEBHOOK_URLS": "https://hooks.example.com"},
    },
}
DIRECTORIES = {"/etc/kapsa/fleet": "etc", "/var/cache/kapsa": "cache"}


def environment(container: Any, directory: Path) -> dict[str, str]:
    """Return the variables of a container, with its directories moved to another one, on a port of loopback."""
    given = {each["name"]: each.get("value", "") for each in container["env"]}
    for origin, target in DIRECTORIES.items():
        given = {name: text.replace(origin, str(directory / target)) for name, text in given.items()}
    return {**given, "KAPSA_FLEET_LISTEN_ADDRESS": "127.0.0.1", "KAPSA_FLEET_LISTEN_PORT": "0"}


def write_secrets(directory: Path) -> str:
    """Write the files of the Secrets, as the kubelet does. Return the authority of the certificate."""
    now, day = datetime.now(UTC), timedelta(days=1)
    authority = make_authority("fleet", now=now, lifetime=day)
    pair = issue_certificate(authority, ["127.0.0.1"], now=now, lifetime=day)
    contents = {
        "encryption-keys/keys": new_key_text().encode(),
        "tls/tls.crt": pair.certificate,
        "tls/tls.key": pair.key,
        "mail/password": b"password",
        "webhooks/secret": b"s" * 24,
    }
    for name, content in contents.items():
        file = directory / "etc" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(0o440)
    return authority.certificate.decode()


@pytest.mark.long
async def test_a_manager_with_the_variables_and_files_of_the_chart_responds_to_its_probes(
    database_url: URL, tmp_path: Path
) -> None:
    pod = only(await rendered(tmp_path, VALUES), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    authority = write_secrets(tmp_path)
    variables = environment(container, tmp_path)
    variables["KAPSA_DATABASE_URL"] = database_url.render_as_string(hide_password=False)
    trusted = ssl.create_default_context(cadata=authority)
    async with (
        FleetServer(FleetSettings.from_environment(variables)) as server,
        aiohttp.ClientSession(server.http.url) as session,
    ):
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[probe]["httpGet"]
            assert server.http.url.startswith(f"{asked['scheme'].lower()}://")
            async with session.get(asked["path"], ssl=trusted) as response:
                assert response.status == 200, (probe, await response.text())
        async with session.get("/metrics", ssl=trusted) as response:
            assert response.status == 401
