"""Settings: the `KAPSA_FLEET_*` environment variables and `KAPSA_DATABASE_URL`, with their defaults.

An invalid value stops the start with one line.
"""

import base64
import difflib
import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from kapsa.adapters.variables import SettingsError, document_variables, read_variables

__all__ = ["DATABASE_VARIABLE", "PREFIX", "FleetSettings", "unknown_variables"]

PREFIX = "KAPSA_FLEET_"
DATABASE_VARIABLE = "KAPSA_DATABASE_URL"
_SECRET = frozenset(
    {
        "database_url",
        "encryption_keys",
        "smtp_password",
        "vault_token",
        "webhook_secret",
        "webhook_urls",
        "oidc_client_secret",
    }
)

_SHORTEST_SECRET = 24

PortNumber = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
Days = Annotated[int, msgspec.Meta(ge=1, le=3_650)]


class FleetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the fleet manager. The variable of a field is its name in capitals after `KAPSA_FLEET_`."""

    database_url: str = ""
    """The PostgreSQL database, as postgresql://user:password@host:5432/database; an embedded server in the data
    directory if empty."""
    data_directory: Path | None = None
    """The directory for the embedded database and for generated keys; /var/lib/kapsa/fleet for root, else
    ~/.local/state/kapsa/fleet."""
    database_connections: Annotated[int, msgspec.Meta(ge=2, le=45)] = 20
    """Maximum number of connections to the database."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The least severe level to log."""
    log_format: Literal["json", "console"] = "json"
    """The format of the log: one JSON object per line, or text for people."""

    listen_address: str = "127.0.0.1"
    """The IP address of the API."""
    listen_port: PortNumber = 8070
    """The port of the API; 0 for any free port."""
    tls_certificate: Path | None = None
    """The file with the certificate chain of the API, as PEM."""
    tls_key: Path | None = None
    """The file with the private key of the certificate, as PEM."""
    plain_http: bool = False
    """True to serve plain HTTP on an address that other machines reach, behind a proxy that terminates TLS."""
    public_url: str = ""
    """The URL under which people reach the manager, for links in mails."""

    encryption_keys: str = ""
    """Keys that seal credentials, as ID:BASE64 with 32 bytes each, separated by commas, the primary first."""
    encryption_keys_file: Path | None = None
    """The file with these keys, one per line. Read again when it changes; the way to rotate without a restart."""

    vault_address: str = ""
    """The address of a Vault server, whose transit engine then wraps the keys of all secrets."""
    vault_transit_key: str = "kapsa-fleet"
    """The name of the key in the transit engine."""
    vault_transit_mount: str = "transit"
    """The path of the transit engine."""
    vault_namespace: str = ""
    """The namespace in Vault, if it has any."""
    vault_token: str = ""
    """The token for Vault."""
    vault_token_file: Path | None = None
    """The file with the token for Vault, read for each request: an agent may renew it."""
    vault_ca_file: Path | None = None
    """The file with the authorities that sign the certificate of Vault; those of the system if empty."""
    vault_only_opens: bool = False
    """True to seal with the encryption keys again and use Vault only to open, on the way back from Vault."""

    jwt_issuer: str = ""
    """The issuer of tokens. Without it, only tokens of `kapsa fleet token` are accepted, for development."""
    jwt_audience: str = "kapsa-fleet"
    """The audience that a token must have."""
    jwt_jwks_url: str = ""
    """The address of the issuer's keys. Required with an issuer."""
    jwt_roles_claim: str = "roles"
    """The claim with the roles of the caller."""
    oidc_client_id: str = ""
    """The client id for signing in with a browser; disabled if empty."""
    oidc_client_secret: str = ""
    """The client secret for signing in with a browser."""

    smtp_host: str = ""
    """The mail server; no mail is sent if empty."""
    smtp_port: PortNumber = 587
    """The port of the mail server."""
    smtp_security: Literal["starttls", "tls", "none"] = "starttls"
    """The protection of the connection to the mail server."""
    smtp_username: str = ""
    """The user for the mail server; no authentication if empty."""
    smtp_password: str = ""
    """The password for the mail server."""
    smtp_password_file: Path | None = None
    """The file with the password for the mail server."""
    smtp_ca_file: Path | None = None
    """The file with the authorities that sign the certificate of the mail server; those of the system if empty."""
    mail_from: str = "kapsa-fleet@localhost"
    """The sender of mails."""
    approval_recipients: tuple[str, ...] = ()
    """Mail addresses that learn of every requested approval, separated by commas."""
    approval_environments: tuple[Literal["Dev", "Staging", "Production"], ...] = ("Production",)
    """Environments in which every deployment needs an approval, separated by commas; `none` for none."""
    approval_breaking_crds: bool = True
    """True to ask for an approval of CRD changes that are breaking or cannot be undone, in every environment."""
    approval_version_upgrades: bool = False
    """True to ask for an approval of every upgrade of an installed operator, in every environment."""
    approval_levels: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1
    """Number of different people who must agree, one after the other."""
    approval_hours: Annotated[int, msgspec.Meta(ge=1, le=720)] = 24
    """Hours until a requested approval expires, given or not."""
    webhook_urls: tuple[str, ...] = ()
    """Addresses that receive signed events, separated by commas."""
    webhook_secret: str = ""
    """The secret for the signatures of events, at least 24 characters."""
    webhook_secret_file: Path | None = None
    """The file with the secrets for signatures. Each line is a secret; events are signed with all of them."""
    webhook_private_addresses: bool = False
    """True to send events to addresses in private networks, such as 10.0.0.0/8, too."""
    internal_addresses: bool = False
    """True to connect to clusters, repositories and webhooks on loopback addresses, too."""
    plain_http_repositories: bool = False
    """True to fetch charts over plain HTTP, too, and from registries whose certificate is not trusted."""
    cluster_token_minutes: Annotated[int, msgspec.Meta(ge=10, le=2_880)] = 360
    """Lifetime of the tokens that the manager uses for clusters. They are renewed at half of it."""

    cluster_role: Annotated[str, msgspec.Meta(pattern=r"^[^/%\s]+$")] = "cluster-admin"
    """The ClusterRole of the manager's account in each cluster that is registered. It must exist there; `kapsa fleet
    role` prints one with fewer rights than the default."""

    audit_retention_days: Days = 400
    """Days until actor and payload of an audit entry are erased. The entry itself stays in the chain."""
    outbox_retention_days: Days = 30
    """Days until a message that was sent is deleted."""
    max_concurrent_deployments: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 20
    """Maximum number of deployments under way, over all replicas."""
    slots: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10
    """Maximum number of clusters that this replica works on at the same time."""
    health_check_seconds: Annotated[int, msgspec.Meta(ge=1, le=300)] = 30
    """Seconds between two health checks of a cluster that a deployment changes."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> "FleetSettings":
        """Read the variables. Raises SettingsError with the variable, its value and the valid values."""
        environment = os.environ if environment is None else environment
        given = read_variables(cls, PREFIX, environment, secret=_SECRET)
        given["database_url"] = environment.get(DATABASE_VARIABLE, "").strip()
        settings = cls(**given)
        settings.check()
        return settings

    @classmethod
    def documentation(cls) -> list[tuple[str, str, str]]:
        """Return each variable with its default and its description."""
        documented = document_variables(cls, PREFIX)
        special = {f"{PREFIX}DATABASE_URL": DATABASE_VARIABLE}
        return [(special.get(variable, variable), default, text) for variable, default, text in documented]

    def __repr__(self) -> str:
        changed = ", ".join(
            f"{field.name}={'***' if field.name in _SECRET else repr(value)}"
            for field in msgspec.structs.fields(self)
            if (value := getattr(self, field.name)) != field.default
        )
        return f"FleetSettings({changed})"

    @property
    def directory(self) -> Path:
        """The data directory, or its default for this user."""
        if self.data_directory is not None:
            return self.data_directory
        if os.geteuid() == 0:
            return Path("/var/lib/kapsa/fleet")
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        return Path(state) / "kapsa" / "fleet"

    def secret(self, name: str) -> str:
        """Return a secret from its variable or its file. Raises SettingsError if the file cannot be read."""
        path: Path | None = getattr(self, f"{name}_file")
        if path is None:
            return str(getattr(self, name))
        try:
            return path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise SettingsError(f"{PREFIX}{name.upper()}_FILE {path} cannot be read: {reason}") from None

    def webhook_secrets(self) -> tuple[str, ...]:
        """Return the secrets that sign events. Raises SettingsError unless there is one, and each is long enough."""
        secrets = tuple(line.strip() for line in self.secret("webhook_secret").splitlines() if line.strip())
        variable = f"{PREFIX}WEBHOOK_SECRET{'_FILE' if self.webhook_secret_file else ''}"
        if not secrets:
            raise SettingsError(f"{variable} has no secret: events are signed")
        if min(map(len, secrets)) < _SHORTEST_SECRET:
            raise SettingsError(f"{variable} has less than {_SHORTEST_SECRET} characters: use a longer one")
        if not all(map(_is_usable, secrets)):
            raise SettingsError(f"{variable} has a secret that is not base64 after whsec_")
        return secrets

    def check(self) -> None:
        """Reject values that types cannot."""
        self._check_listener()
        self._check_tokens()
        self._check_delivery()
        self._check_vault()
        if self.encryption_keys and self.encryption_keys_file:
            raise SettingsError(
                f"{PREFIX}ENCRYPTION_KEYS and {PREFIX}ENCRYPTION_KEYS_FILE are both set: choose one of them"
            )

    def _check_listener(self) -> None:
        try:
            address = ipaddress.ip_address(self.listen_address)
        except ValueError:
            raise _invalid("listen_address", self.listen_address, "an IP address, such as 0.0.0.0") from None
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise SettingsError(f"{PREFIX}TLS_CERTIFICATE and {PREFIX}TLS_KEY must be set together")
        if not address.is_loopback and self.tls_certificate is None and not self.plain_http:
            raise SettingsError(
                f"{PREFIX}LISTEN_ADDRESS is {self.listen_address}, which other machines reach: set {PREFIX}TLS_CERTIFICATE "
                f"and {PREFIX}TLS_KEY, or {PREFIX}PLAIN_HTTP=true behind a proxy that terminates TLS"
            )
        _check_url("public_url", self.public_url, ("https", "http"))

    def _check_vault(self) -> None:
        if not self.vault_address:
            return
        _check_url("vault_address", self.vault_address, ("https", "http"))
        parts = urlsplit(self.vault_address)
        if parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
            raise SettingsError(
                f"{PREFIX}VAULT_ADDRESS is plain HTTP to another machine: use https, or an agent on 127.0.0.1"
            )
        if bool(self.vault_token) == bool(self.vault_token_file):
            raise SettingsError(
                f"{PREFIX}VAULT_ADDRESS is set, so {PREFIX}VAULT_TOKEN_FILE or {PREFIX}VAULT_TOKEN must be set, "
                "and not both"
            )
        for name in ("vault_transit_key", "vault_transit_mount"):
            value: str = getattr(self, name)
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value):
                raise _invalid(name, value, "a name of letters, digits, dots and dashes")

    def _check_tokens(self) -> None:
        if bool(self.jwt_issuer) != bool(self.jwt_jwks_url):
            raise SettingsError(f"{PREFIX}JWT_ISSUER and {PREFIX}JWT_JWKS_URL must be set together")
        _check_url("jwt_jwks_url", self.jwt_jwks_url, ("https",))

    def _check_delivery(self) -> None:
        for name in ("smtp_password", "webhook_secret"):
            if getattr(self, name) and getattr(self, f"{name}_file"):
                variable = PREFIX + name.upper()
                raise SettingsError(f"{variable} and {variable}_FILE are both set: choose one of them")
        for url in self.webhook_urls:
            _check_url("webhook_urls", url, ("https", "http"))
        if self.webhook_urls and not (self.webhook_secret or self.webhook_secret_file):
            raise SettingsError(
                f"{PREFIX}WEBHOOK_URLS is set, so {PREFIX}WEBHOOK_SECRET must be set, too: events are signed"
            )
        if self.webhook_secret:
            self.webhook_secrets()
        for name, value in (
            ("mail_from", self.mail_from),
            *(("approval_recipients", r) for r in self.approval_recipients),
        ):
            if not re.fullmatch(r"[^\s@<>,;]+@[^\s@<>,;]+", value):
                raise _invalid(name, value, "an email address")


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each variable that looks like a setting, and is none.

    Kubernetes sets `KAPSA_FLEET_PORT` and `KAPSA_FLEET_SERVICE_*` for a Service of that name; they are ignored.
    """
    names = [variable for variable, _, _ in FleetSettings.documentation()]
    warnings = []
    for variable in sorted(environment):
        if (
            variable.startswith(PREFIX)
            and variable not in names
            and not _SERVICE_VARIABLE.fullmatch(variable)
        ):
            similar = difflib.get_close_matches(variable, names, 1)
            hint = f"; did you mean {similar[0]}?" if similar else ""
            warnings.append(f"{variable} is not a setting{hint}")
    return warnings


_SERVICE_VARIABLE = re.compile(
    r"KAPSA_FLEET(_[A-Z0-9]+)*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP).*)?)"
)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_usable(secret: str) -> bool:
    """Return whether a secret for webhooks has no prefix, or is base64 after it."""
    encoded = secret.removeprefix("whsec_")
    try:
        return encoded == secret or bool(base64.b64decode(encoded, validate=True))
    except ValueError:
        return False


def _check_url(name: str, url: str, schemes: tuple[str, ...]) -> None:
    if not url:
        return
    try:
        parts = urlsplit(url)
        valid = parts.scheme in schemes and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid:
        # The URL of a webhook often has a secret in its path, so it is not shown.
        raise SettingsError(
            f"{PREFIX}{name.upper()} has an invalid address: use {' or '.join(schemes)}://host/path"
        )


def _invalid(name: str, value: str, expected: str) -> SettingsError:
    return SettingsError(f"{PREFIX}{name.upper()} is {value!r}, but must be {expected}")
