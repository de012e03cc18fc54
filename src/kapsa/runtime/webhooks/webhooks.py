"""The declaration of an operator's webhooks, which the API server calls before a write or to convert.

    webhooks = Webhooks(MyAppValidator(), MyAppDefaulter(), service="my-operator-webhooks")
    operator = Operator(controllers=[MyAppController()], webhooks=webhooks)

The operator registers them and keeps the certificate and the registration up to date.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from kapsa.runtime.generate.crd import ConversionWebhook
from kapsa.runtime.generate.rbac import WebhookRights
from kapsa.runtime.webhooks.admission import MutatingWebhook, ValidatingWebhook
from kapsa.runtime.webhooks.certificates import Lifetimes
from kapsa.runtime.webhooks.conversion import Conversions, Converter

__all__ = ["WebhookRoute", "Webhooks", "secret_name"]

WebhookRoute: TypeAlias = Callable[[str, Callable[[str, bytes], Awaitable[tuple[int, bytes]]]], None]
"""Delivers webhook calls within this process: takes the address they go to, and a handler of a path and a
body that returns a status and a body."""


class Webhooks:
    """The webhooks of an operator, and the address at which the API server reaches them."""

    def __init__(
        self,
        *webhooks: ValidatingWebhook[Any] | MutatingWebhook[Any],
        converters: Sequence[Converter[Any, Any]] = (),
        former: Sequence[Literal["validating", "mutating"]] = (),
        service: str = "",
        url: str = "",
        namespace: str = "",
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
        if (service and url) or ((webhooks or converters) and not (service or url)):
            raise ValueError("webhooks need either a service or a url")
        self.webhooks = webhooks
        """Validating and mutating webhooks."""
        self.conversions = Conversions(converters)
        """The conversions between the versions of a kind, built from the `converters`."""
        self.former = tuple(former) if self.served else ("validating", "mutating")
        """The forms of which the last webhook was dropped: their registration is deleted. Both, if none is left."""
        self.service = service
        """The Service in front of the operator's pods."""
        self.url = url
        """The address of an operator outside the cluster, instead of a Service: `https://host:port`."""
        self.namespace = namespace
        """The namespace of the Service and of the Secret with the certificates; that of the operator's pod, or of
        its kubeconfig, by default."""
        self.host = host
        """The address to listen on."""
        self.port = port
        """The port to listen on; 0 for any free port."""
        self.service_port = service_port
        """The port of the Service."""
        self.cert_dir = Path(cert_dir) if cert_dir is not None else None
        """A directory with tls.crt, tls.key and optionally ca.crt. Without it the operator creates
        certificates and keeps them in a Secret."""
        self.lifetimes = lifetimes
        """Lifetimes of the certificates that the operator creates."""
        self.max_body_bytes = max_body_bytes
        """The size above which a request is rejected."""
        self.body_timeout = body_timeout
        """Seconds for the body of a request to arrive before the request is rejected."""
        self.idle_timeout = idle_timeout
        """Seconds until a connection without a request is closed. The API server closes its own after 90
        seconds and must be first, or its next call meets a closed connection."""
        self.max_connections = max_connections
        """The number of concurrent connections. Beyond it the oldest is closed."""
        self.check_every = check_every
        """Seconds between checks of certificates and registrations."""
        self.temporary = False
        """True if the registrations last as long as the process (see `serve_from`)."""
        self.authority: bytes | None = None
        """The CA of whatever answers at `url`, as PEM, if that is not the operator itself; empty for a public one."""
        self._check_paths()
        self._check_former()

    @property
    def served(self) -> bool:
        """True if there is anything to serve.

        `Webhooks()` serves nothing: it is for an operator that dropped its last webhook, to remove its registrations.
        """
        return bool(self.webhooks or self.conversions.crds)

    def serve_from(self, url: str, *, port: int | None = None, authority: bytes | None = None) -> None:
        """Serve from outside the cluster at a URL that reaches this process, until it stops.

        The registrations in the cluster are replaced meanwhile, and put back at the end. `authority` is the CA of
        a tunnel that terminates TLS in front of this process, empty if it has a public certificate.
        """
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"invalid webhook URL {url!r}: use https://HOST[:PORT][/PATH]")
        self.service, self.url, self.temporary, self.authority = "", url, True, authority
        if port is not None:
            self.port = port

    def _check_paths(self) -> None:
        seen: dict[str, str] = {}
        for webhook in self.webhooks:
            name = type(webhook).__name__
            if other := seen.get(webhook.path):
                raise ValueError(
                    f"{other} and {name} are both served at {webhook.path}: set the path of one of them"
                )
            seen[webhook.path] = name

    def _check_former(self) -> None:
        for form, base in (("validating", ValidatingWebhook), ("mutating", MutatingWebhook)):
            if form in self.former and any(isinstance(webhook, base) for webhook in self.webhooks):
                raise ValueError(f"there are {form} webhooks: remove {form!r} from former")

    def rights(self, operator: str) -> WebhookRights:
        """Return the rights that the operator needs to keep its webhooks registered."""
        return WebhookRights(
            validating=operator if any(isinstance(w, ValidatingWebhook) for w in self.webhooks) else "",
            mutating=operator if any(isinstance(w, MutatingWebhook) for w in self.webhooks) else "",
            former_validating=operator if "validating" in self.former else "",
            former_mutating=operator if "mutating" in self.former else "",
            conversion=self.conversions.crds,
            secret=secret_name(operator) if self.served and self.cert_dir is None else "",
            secret_namespace=self.namespace,
        )

    def conversion_webhook(self, namespace: str) -> ConversionWebhook | None:
        """Return the webhook for the CRDs of an operator in this namespace; None without converters.

        It has no CA bundle: until the operator registers one, requests that need a conversion fail. Nothing is lost.
        """
        if not self.conversions.crds:
            return None
        if self.url:
            return ConversionWebhook(url=self.url)
        return ConversionWebhook(service=self.service, namespace=namespace, port=self.service_port)

    def address(self, namespace: str) -> str:
        """Return the address of the calls: the Service as namespace/name, or the origin of the URL."""
        return "/".join(self.url.split("/")[:3]) if self.url else f"{namespace}/{self.service}"

    def hosts(self, namespace: str) -> list[str]:
        """Return the host names that the certificate must carry."""
        if self.url:
            return [str(urlsplit(self.url).hostname)]
        return [f"{self.service}.{namespace}.svc", f"{self.service}.{namespace}.svc.cluster.local"]


def secret_name(operator: str) -> str:
    """Return the name of the Secret that holds the certificates of an operator."""
    return f"{operator}-webhook-certificates"
