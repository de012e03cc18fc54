"""Settings of the fleet manager: defaults, one line for an invalid value, and no secret in any message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kapsa.adapters.variables import SettingsError
from kapsa.fleet.settings import FleetSettings, unknown_variables


def read(**variables: str) -> FleetSettings:
    return FleetSettings.from_environment({f"KAPSA_FLEET_{name}": value for name, value in variables.items()})


def test_nothing_has_to_be_configured() -> None:
    settings = FleetSettings.from_environment({})
    assert settings.database_url == ""
    assert (settings.listen_address, settings.listen_port) == ("127.0.0.1", 8070)
    assert settings.directory.is_absolute()


def test_the_database_has_the_variable_of_the_whole_product() -> None:
    url = "postgresql://fleet@db/fleet"
    assert FleetSettings.from_environment({"KAPSA_DATABASE_URL": url}).database_url == url
    assert read(DATABASE_URL=url).database_url == ""


def test_the_data_directory_of_a_person_is_below_their_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert read().directory == Path("/home/ada/.local/state/kapsa/fleet")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert read().directory == Path("/state/kapsa/fleet")
    assert read(DATA_DIRECTORY="/data").directory == Path("/data")


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"LISTEN_PORT": "x"}, "KAPSA_FLEET_LISTEN_PORT is 'x', but must be a whole number, at least 0"),
        ({"LISTEN_ADDRESS": "host"}, "KAPSA_FLEET_LISTEN_ADDRESS is 'host', but must be an IP address"),
        ({"LISTEN_ADDRESS": "0.0.0.0"}, "which other machines reach: set KAPSA_FLEET_TLS_CERTIFICATE"),
        ({"TLS_KEY": "/key"}, "KAPSA_FLEET_TLS_CERTIFICATE and KAPSA_FLEET_TLS_KEY must be set together"),
        ({"LOG_LEVEL": "loud"}, "must be one of DEBUG, INFO, WARNING, ERROR"),
        (
            {"JWT_ISSUER": "https://i"},
            "KAPSA_FLEET_JWT_ISSUER and KAPSA_FLEET_JWT_JWKS_URL must be set together",
        ),
        (
            {"JWT_ISSUER": "https://i", "JWT_JWKS_URL": "http://i"},
            "KAPSA_FLEET_JWT_JWKS_URL has an invalid address",
        ),
        ({"WEBHOOK_URLS": "https://h/x"}, "KAPSA_FLEET_WEBHOOK_SECRET must be set, too"),
        (
            {"WEBHOOK_URLS": "ftp://h", "WEBHOOK_SECRET": "s" * 24},
            "KAPSA_FLEET_WEBHOOK_URLS has an invalid address",
        ),
        ({"WEBHOOK_URLS": "https://h:x", "WEBHOOK_SECRET": "s" * 24}, "has an invalid address"),
        ({"WEBHOOK_SECRET": "short"}, "KAPSA_FLEET_WEBHOOK_SECRET has less than 24 characters"),
        ({"WEBHOOK_SECRET": "whsec_" + "!" * 24}, "has a secret that is not base64 after whsec_"),
        ({"SMTP_PASSWORD": "p", "SMTP_PASSWORD_FILE": "/p"}, "are both set: choose one of them"),
        ({"ENCRYPTION_KEYS": "a:b", "ENCRYPTION_KEYS_FILE": "/k"}, "are both set: choose one of them"),
        (
            {"VAULT_ADDRESS": "http://vault.example.com:8200", "VAULT_TOKEN": "t"},
            "KAPSA_FLEET_VAULT_ADDRESS is plain HTTP to another machine: use https",
        ),
        (
            {"VAULT_ADDRESS": "https://v"},
            "KAPSA_FLEET_VAULT_TOKEN_FILE or KAPSA_FLEET_VAULT_TOKEN must be set",
        ),
        (
            {"VAULT_ADDRESS": "https://v", "VAULT_TOKEN": "t", "VAULT_TOKEN_FILE": "/t"},
            "must be set, and not both",
        ),
        (
            {"VAULT_ADDRESS": "http://127.0.0.1:8200", "VAULT_TOKEN": "t", "VAULT_TRANSIT_KEY": "../sys"},
            "KAPSA_FLEET_VAULT_TRANSIT_KEY is '../sys', but must be a name",
        ),
        ({"MAIL_FROM": "ada"}, "KAPSA_FLEET_MAIL_FROM is 'ada', but must be an email address"),
        (
            {"APPROVAL_ENVIRONMENTS": "Production,Moon"},
            "KAPSA_FLEET_APPROVAL_ENVIRONMENTS is 'Production,Moon', but must be one of Dev, Staging, Production",
        ),
        ({"APPROVAL_LEVELS": "0"}, "KAPSA_FLEET_APPROVAL_LEVELS is '0'"),
        ({"APPROVAL_RECIPIENTS": "a@b.c,x y@z"}, "KAPSA_FLEET_APPROVAL_RECIPIENTS is 'x y@z'"),
        ({"DATABASE_CONNECTIONS": "500"}, "at least 2 and at most 45"),
        ({"AUDIT_RETENTION_DAYS": "0"}, "KAPSA_FLEET_AUDIT_RETENTION_DAYS is '0'"),
    ],
)
def test_an_invalid_value_is_one_line(variables: dict[str, str], line: str) -> None:
    with pytest.raises(SettingsError) as rejected:
        read(**variables)
    assert line in str(rejected.value)
    assert "\n" not in str(rejected.value)


def test_an_address_that_other_machines_reach_needs_tls_or_a_proxy() -> None:
    assert read(LISTEN_ADDRESS="0.0.0.0", PLAIN_HTTP="true").plain_http
    assert read(LISTEN_ADDRESS="::", TLS_CERTIFICATE="/c", TLS_KEY="/k").tls_key == Path("/k")


def test_no_secret_is_in_a_representation_or_an_error() -> None:
    settings = FleetSettings.from_environment(
        {
            "KAPSA_DATABASE_URL": "postgresql://u:geheim@h/d",
            "KAPSA_FLEET_SMTP_PASSWORD": "geheim",
            "KAPSA_FLEET_VAULT_TOKEN": "geheim",
            "KAPSA_FLEET_WEBHOOK_SECRET": "geheim" * 5,
            "KAPSA_FLEET_ENCRYPTION_KEYS": "a:geheim",
            "KAPSA_FLEET_OIDC_CLIENT_SECRET": "geheim",
        }
    )
    assert "geheim" not in repr(settings)
    with pytest.raises(SettingsError) as rejected:
        read(WEBHOOK_URLS="ftp://hooks/geheim", WEBHOOK_SECRET="s" * 24)
    assert "geheim" not in str(rejected.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "KAPSA_FLEET_WEBHOOK_SECRET_FILE has no secret"),
        ("n" * 30 + "\nshort\n", "KAPSA_FLEET_WEBHOOK_SECRET_FILE has less than 24 characters"),
    ],
    ids=["empty", "short"],
)
def test_a_file_without_a_proper_secret_for_webhooks_is_refused(
    tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "secret").write_text(content)
    settings = read(WEBHOOK_URLS="https://h/x", WEBHOOK_SECRET_FILE=str(tmp_path / "secret"))
    with pytest.raises(SettingsError, match=message):
        settings.webhook_secrets()


def test_a_file_with_two_secrets_for_webhooks_has_both(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("n" * 24 + "\n\n" + "o" * 24 + "\n")
    settings = read(WEBHOOK_URLS="https://h/x", WEBHOOK_SECRET_FILE=str(tmp_path / "secret"))
    assert settings.webhook_secrets() == ("n" * 24, "o" * 24)


def test_a_secret_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("geheim\n")
    assert read(SMTP_PASSWORD_FILE=str(tmp_path / "password")).secret("smtp_password") == "geheim"
    assert read(SMTP_PASSWORD="direct").secret("smtp_password") == "direct"
    with pytest.raises(
        SettingsError, match=r"KAPSA_FLEET_SMTP_PASSWORD_FILE \S+ cannot be read: No such file"
    ):
        read(SMTP_PASSWORD_FILE=str(tmp_path / "missing")).secret("smtp_password")


def test_a_misspelled_variable_is_reported_with_the_right_one() -> None:
    assert unknown_variables({"KAPSA_FLEET_SMPT_HOST": "x", "KAPSA_FLEET_SMTP_HOST": "y", "HOME": "/"}) == [
        "KAPSA_FLEET_SMPT_HOST is not a setting; did you mean KAPSA_FLEET_SMTP_HOST?"
    ]


@pytest.mark.parametrize(
    "variable",
    ["PORT", "PORT_8070_TCP", "PORT_8070_TCP_ADDR", "SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTPS"],
)
def test_the_variables_that_kubernetes_sets_for_a_service_are_ignored(variable: str) -> None:
    assert unknown_variables({f"KAPSA_FLEET_{variable}": "tcp://10.0.0.1:8070"}) == []


def test_every_variable_is_documented() -> None:
    documented = FleetSettings.documentation()
    assert documented[0][0] == "KAPSA_DATABASE_URL"
    assert all(text for _, _, text in documented)
    assert len({variable for variable, _, _ in documented}) == len(documented)
