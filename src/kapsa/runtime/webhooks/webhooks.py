"""The webhooks of an operator: what the API server calls over TLS before it writes, and to convert between versions.

    webhooks = Webhooks(MyAppValidator(), MyAppDefaulter(), service="my-operator-webhooks")
    operator = Operator(controllers=[MyAppController()], webhooks=webhooks)

The operator registers them and keeps certificate and registration up to date by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kapsa.runtime.generate.rbac import WebhookRights
from kapsa.runtime.webhooks.admission import MutatingWebhook, ValidatingWebhook
from kapsa.runtime.webhooks.certificates import Lifetimes
from kapsa.runtime.webhooks.conversion import Conversions, Converter

__all__ = ["Webhooks", "secret_name"]


class Webhooks:
    """Which webhooks an operator has, and where they are reached. A declaration: `WebhookServer` runs it."""

    def __init__(
        self,
        *webhooks: ValidatingWebhook[Any] | MutatingWebhook[Any],
        converters: Sequence[Converter[Any, Any]] = (),
        service: str = "",
        url: str = "",
        host: str = "0.0.0.0",  # noqa: S104 - the API server comes from outside the pod
        port: int = 9443,
        service_port: int = 443,
        cert_dir: Path | str | None = None,
        lifetimes: Lifetimes | None = None,
        max_body_bytes: int = 8 * 1024 * 1024,
        body_timeout: float = 10.0,
        idle_timeout: float = 120.0,
        max_connections: int = 512,
        check_every: float = 60.0,
    ) -> None:
        """
        :param webhooks: validating and mutating webhooks.
        :param converters: the ways between versions of a kind.
        :param service: the Service before the operator's pods, in its namespace.
        :param url: instead of a Service, for an operator outside the cluster: `https://host:port`.
        :param host: the address to listen on.
        :param port: the port to listen on; 0 for any free one.
        :param service_port: the Service's own port.
        :param cert_dir: a directory with tls.crt, tls.key and perhaps ca.crt; without it the operator makes its own
            certificates and keeps them in a Secret.
        :param lifetimes: how long self-made certificates live.
        :param max_body_bytes: larger requests are refused.
        :param body_timeout: seconds that the body of a request has to arrive; then it is refused.
        :param idle_timeout: seconds until a connection without a request is closed. The API server closes its own after
            90 and must be first, or a call meets a closed connection.
        :param max_connections: connections at a time. Beyond it the oldest goes.
        :param check_every: seconds between looks at certificates and registrations.
        """
        if bool(service) == bool(url):
            raise ValueError("webhooks need either the Service that leads to them, or a url")
        self.webhooks = webhooks
        self.conversions = Conversions(converters)
        self.service = service
        self.url = url
        self.host = host
        self.port = port
        self.service_port = service_port
        self.cert_dir = Path(cert_dir) if cert_dir is not None else None
        self.lifetimes = lifetimes
        self.max_body_bytes = max_body_bytes
        self.body_timeout = body_timeout
        self.idle_timeout = idle_timeout
        self.max_connections = max_connections
        self.check_every = check_every
        self._check_paths()

    def _check_paths(self) -> None:
        seen: dict[str, str] = {}
        for webhook in self.webhooks:
            name = type(webhook).__name__
            if other := seen.get(webhook.path):
                raise ValueError(
                    f"{other} and {name} are both at {webhook.path}: give one of them another path"
                )
            seen[webhook.path] = name

    def rights(self, operator: str) -> WebhookRights:
        """What the operator may do to keep them registered."""
        return WebhookRights(
            validating=operator if any(isinstance(w, ValidatingWebhook) for w in self.webhooks) else "",
            mutating=operator if any(isinstance(w, MutatingWebhook) for w in self.webhooks) else "",
            conversion=self.conversions.crds,
            secret=secret_name(operator) if self.cert_dir is None else "",
        )

    def address(self, namespace: str) -> str:
        """Where they are called: the Service as namespace/name, or scheme, host and port of the url."""
        return "/".join(self.url.split("/")[:3]) if self.url else f"{namespace}/{self.service}"

    def hosts(self, namespace: str) -> list[str]:
        """The names that the certificate must carry."""
        if self.url:
            return [str(urlsplit(self.url).hostname)]
        return [f"{self.service}.{namespace}.svc", f"{self.service}.{namespace}.svc.cluster.local"]


def secret_name(operator: str) -> str:
    """The Secret that holds an operator's self-made certificates."""
    return f"{operator}-webhook-certificates"
