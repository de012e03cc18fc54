"""The registration of webhooks: the webhook configurations, the conversion of CRDs, and their CA bundle."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog

from kapsa.runtime.client.client import Client
from kapsa.runtime.errors import NotFound
from kapsa.runtime.resources.kind import Manifest
from kapsa.runtime.webhooks.admission import MutatingWebhook, ValidatingWebhook, Webhook

__all__ = ["Endpoint", "Registrar"]

_log = structlog.get_logger(__name__)
_API_VERSION = "admissionregistration.k8s.io/v1"
_CRD = "apiextensions.k8s.io/v1/CustomResourceDefinition"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The address of the webhooks: a Service, or a URL for an operator outside the cluster."""

    service: str = ""
    namespace: str = ""
    port: int = 443
    url: str = ""

    def client_config(self, path: str, bundle: bytes) -> Manifest:
        """Return the `clientConfig` of the webhook at a path."""
        config: Manifest
        if self.url:
            config = {"url": f"{self.url.rstrip('/')}{path}"}
        else:
            service = {"name": self.service, "namespace": self.namespace, "path": path, "port": self.port}
            config = {"service": service}
        if bundle:
            config["caBundle"] = base64.b64encode(bundle).decode()
        return config


class Registrar:
    """Keeps the webhook configurations and the conversion of the CRDs up to date, writing only what differs.

    A configuration that another manager created, such as a Helm chart, only gets the CA bundle.
    """

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        endpoint: Endpoint,
        webhooks: Sequence[Webhook[Any]],
        crds: Sequence[str] = (),
        conversion_path: str = "/convert",
    ) -> None:
        self._client = client
        self._name = name
        self._endpoint = endpoint
        self._webhooks = webhooks
        self._crds = crds
        self._conversion_path = conversion_path

    async def register(self, bundle: bytes) -> None:
        """Update the registrations in the cluster, with this CA bundle.

        An empty bundle is left to the issuer of the certificate, such as cert-manager's CA injector.
        """
        for manifest in self.configurations(bundle):
            await self._keep(manifest)
        for crd in self._crds:
            await self._keep_conversion(crd, bundle)

    def configurations(self, bundle: bytes) -> list[Manifest]:
        """Return the validating and the mutating webhook configuration, if they have webhooks."""
        made = []
        for kind, base in (
            ("ValidatingWebhookConfiguration", ValidatingWebhook),
            ("MutatingWebhookConfiguration", MutatingWebhook),
        ):
            entries = [
                webhook.registration(self._endpoint.client_config(webhook.path, bundle))
                for webhook in self._webhooks
                if isinstance(webhook, base)
            ]
            if entries:
                made.append(
                    {
                        "apiVersion": _API_VERSION,
                        "kind": kind,
                        "metadata": {"name": self._name},
                        "webhooks": entries,
                    }
                )
        return made

    async def _keep(self, manifest: Manifest) -> None:
        kind = f"{_API_VERSION}/{manifest['kind']}"
        try:
            live = await self._client.get(kind, self._name)
        except NotFound:
            live = {}
        if self._is_foreign(live):
            manifest = _bundles_only(manifest, live)
        if not _contains(live, manifest):
            await self._client.apply(manifest, force=True)
            _log.info("webhooks registered", configuration=manifest["kind"], name=self._name)

    def _is_foreign(self, live: Manifest) -> bool:
        """Return whether another manager, such as Helm, owns the webhooks.

        Its next upgrade must not conflict with us. A manager that only sets the CA bundle, as cert-manager does, does not own them.
        """
        return any(
            "f:rules" in webhook
            for entry in (live.get("metadata") or {}).get("managedFields") or ()
            if entry.get("manager") != self._client.field_manager
            for webhook in ((entry.get("fieldsV1") or {}).get("f:webhooks") or {}).values()
        )

    async def _keep_conversion(self, crd: str, bundle: bytes) -> None:
        client_config = self._endpoint.client_config(self._conversion_path, bundle)
        conversion = {
            "strategy": "Webhook",
            "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client_config},
        }
        try:
            live = await self._client.get(_CRD, crd)
        except NotFound:
            return  # not installed yet: the next check tries again
        if not _contains(live["spec"].get("conversion", {}), conversion):
            await self._client.patch(_CRD, crd, {"spec": {"conversion": conversion}})
            _log.info("conversion registered", crd=crd)


def _bundles_only(manifest: Manifest, live: Manifest) -> Manifest:
    """Return the configuration reduced to the CA bundles of the webhooks that exist."""
    names = [webhook["name"] for webhook in live.get("webhooks") or ()]
    bundles = {webhook["name"]: webhook["clientConfig"].get("caBundle") for webhook in manifest["webhooks"]}
    entries = [
        {"name": name, **({"clientConfig": {"caBundle": bundles[name]}} if bundles.get(name) else {})}
        for name in names
    ]
    return {**manifest, "webhooks": entries}


def _contains(live: Any, desired: Any) -> bool:
    """Return whether the live value has every desired field. Lists must have the same length."""
    if isinstance(desired, Mapping):
        return isinstance(live, Mapping) and all(
            _contains(live.get(key), value) for key, value in desired.items()
        )
    if isinstance(desired, list):
        return (
            isinstance(live, list)
            and len(live) == len(desired)
            and all(_contains(item, value) for item, value in zip(live, desired, strict=True))
        )
    return bool(live == desired)
