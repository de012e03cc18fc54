"""The way into clusters: an untrusted kubeconfig becomes a client that judges the address at each connection."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from kapsa.adapters.redaction import printable, redact
from kapsa.fleet.domain.errors import InvalidField, InvalidInput
from kapsa.fleet.infrastructure.clusters.kubeconfig_credential import credential_id
from kapsa.fleet.infrastructure.clusters.session import KubernetesSession
from kapsa.fleet.infrastructure.clusters.traced_transport import TracedTransport
from kapsa.runtime import Client, ConfigError, HttpTransport, RetryPolicy, load_untrusted

__all__ = ["ClusterClient", "KubernetesGateway", "untrusted_client"]

_CONNECTIONS = 4
"""Ten sweeps, ten rollouts and ten checks at a time, which send one request after another, have 90 at most."""
_LARGEST_RESPONSE = 32 * 1024 * 1024


class ClusterClient(Client):
    """A client of a managed cluster."""

    credential_id: str = ""
    """The id of the credential that it uses, for audit entries."""
    close_idle: Callable[[], None]
    """Closes its connections that no request uses."""


class KubernetesGateway:
    """Sessions over kubeconfigs that nobody has to trust."""

    def __init__(
        self, *, allow_loopback: bool = False, token_lifetime: timedelta = timedelta(hours=6)
    ) -> None:
        self._allow_loopback = allow_loopback
        self._token_lifetime = token_lifetime

    @asynccontextmanager
    async def connect(self, kubeconfig: bytes) -> AsyncIterator[KubernetesSession]:
        """Open a session.

        Raises InvalidInput that names the field if the kubeconfig has anything that is not allowed.
        """
        client = untrusted_client(kubeconfig, allow_loopback=self._allow_loopback)
        async with client:
            yield KubernetesSession(client, client.cluster, kubeconfig, self._token_lifetime)


def untrusted_client(kubeconfig: bytes, *, allow_loopback: bool) -> ClusterClient:
    """Return a client for a kubeconfig, which the untrusted loader must accept.

    Raises InvalidInput that names the field.
    """
    try:
        access = load_untrusted(kubeconfig, allow_loopback=allow_loopback)
    except ConfigError as error:
        message = redact(printable(str(error)))[:1000]
        raise InvalidInput(message, InvalidField("/kubeconfig", message)) from None
    transport = HttpTransport(
        access,
        connections=_CONNECTIONS,
        timeout=30.0,
        connect_timeout=5.0,
        max_response_bytes=_LARGEST_RESPONSE,
        user_agent="kapsa-fleet",
    )
    client = ClusterClient(
        TracedTransport(transport),
        field_manager="kapsa-fleet",
        cluster=access.server,
        retry=RetryPolicy(attempts=2, patience=2.0),
    )
    client.credential_id = credential_id(kubeconfig)
    client.close_idle = transport.close_idle
    return client
