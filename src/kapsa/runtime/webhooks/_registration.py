"""The registration of webhooks: the webhook configurations, the conversion of CRDs, and their CA bundle."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog

from kapsa.runtime.client.client import Client
from kapsa.runtime.errors import ConfigError, Conflict, NotFound
from kapsa.runtime.resources.kind import Manifest
from kapsa.runtime.webhooks.admission import MutatingWebhook, ValidatingWebhook, Webhook

__all__ = ["Endpoint", "Registrar"]

_log = structlog.get_logger(__name__)
_API_VERSION = "admissionregistration.k8s.io/v1"
_CRD = "apiextensions.k8s.io/v1/CustomResourceDefinition"
_CONFIGURATIONS: dict[str, type[Any]] = {
    "ValidatingWebhookConfiguration": ValidatingWebhook,
    "MutatingWebhookConfiguration": MutatingWebhook,
}
_REPLACED = "kapsa.dev/replaced-registration"
"""The annotation of a temporary registration: what to put back, as JSON."""


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
    """The webhook configurations and the conversion of the CRDs, kept up to date. Writes only what differs.

    A configuration that another manager created, such as a Helm chart, only gets the CA bundle, and one that calls
    another address than ours is reported. One of ours of a `former` form is deleted. With `temporary`, the registrations last as long as the process: they
    carry what they replaced in an annotation, and `withdraw` puts it back.
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
        former: Sequence[str] = (),
        temporary: bool = False,
    ) -> None:
        self._client = client
        self._name = name
        self._endpoint = endpoint
        self._webhooks = webhooks
        self._crds = crds
        self._conversion_path = conversion_path
        self._former = [kind for kind in _CONFIGURATIONS if kind.lower().startswith(tuple(former))]
        self._temporary = temporary
        self._reported: set[str] = set()
        """The addresses of another manager's configurations that were reported."""

    async def register(self, bundle: bytes) -> None:
        """Update the registrations in the cluster, with this CA bundle.

        An empty bundle is left to the issuer of the certificate, such as cert-manager's CA injector.
        """
        for manifest in self.configurations(bundle):
            await self._keep(manifest)
        for kind in () if self._temporary else self._former:
            await self._remove(kind)
        for crd in self._crds:
            await self._keep_conversion(crd, bundle)

    async def withdraw(self) -> None:
        """Put back what temporary registrations replaced, and delete those that replaced nothing."""
        if not self._temporary:
            return
        for kind in _CONFIGURATIONS:
            live = await self._live(f"{_API_VERSION}/{kind}", self._name)
            if (replaced := _replaced(live)) is not None:
                await self._put_back(kind, live, msgspec.json.decode(replaced))
        for crd in self._crds:
            live = await self._live(_CRD, crd)
            if (replaced := _replaced(live)) is not None:
                await self._put_back_conversion(crd, msgspec.json.decode(replaced))

    def configurations(self, bundle: bytes) -> list[Manifest]:
        """Return the validating and the mutating webhook configuration, if they have webhooks."""
        made = []
        for kind, base in _CONFIGURATIONS.items():
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

    async def _live(self, kind: str, name: str) -> Manifest:
        """Return an object of the cluster; empty if it does not exist."""
        try:
            return await self._client.get(kind, name)
        except NotFound:
            return {}

    async def _keep(self, manifest: Manifest) -> None:
        live = await self._live(f"{_API_VERSION}/{manifest['kind']}", self._name)
        owner = self._foreign_manager(live)
        if self._temporary:
            if owner:
                raise ConfigError(
                    f"{manifest['kind']} {self._name} belongs to {owner}, so webhooks cannot be served from here "
                    "instead: remove it while you try them, for instance by the chart's setting for webhooks"
                )
            manifest["metadata"] = {"name": self._name, "annotations": _note(live, live.get("webhooks"))}
        elif owner:
            self._report_other_address(manifest, live, owner)
            manifest = _bundles_only(manifest, live)
        if not _contains(live, manifest):
            await self._client.apply(manifest, force=True)
            _log.info("webhooks registered", configuration=manifest["kind"], name=self._name)

    def _report_other_address(self, manifest: Manifest, live: Manifest, owner: str) -> None:
        """Log, once, that another manager's configuration makes the API server call another address."""
        served = {webhook["name"]: _address(webhook) for webhook in manifest["webhooks"]}
        for webhook in live.get("webhooks") or ():
            address, expected = _address(webhook), served.get(webhook["name"])
            if expected is None or address == expected or address in self._reported:
                continue
            self._reported.add(address)
            _log.error(
                f"the API server does not call these webhooks: {manifest['kind']} {self._name} belongs to {owner} and "
                "has another address. Change it there, or remove it so that this operator registers its own",
                webhook=webhook["name"],
                called=address,
                served=expected,
            )

    async def _remove(self, kind: str) -> None:
        """Delete a configuration that has no webhooks any more, if this operator applied it and nobody else."""
        live = await self._live(f"{_API_VERSION}/{kind}", self._name)
        if self._is_ours(live) and not self._foreign_manager(live):
            await self._delete(kind, live)

    async def _delete(self, kind: str, live: Manifest) -> None:
        """Delete a configuration as it was read: not one that somebody has changed or created since."""
        metadata = live["metadata"]
        try:
            await self._client.delete(
                f"{_API_VERSION}/{kind}",
                self._name,
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
                missing_ok=True,
            )
        except Conflict:
            return  # the next check looks at it again
        _log.info("webhooks removed", configuration=kind, name=self._name)

    async def _put_back(self, kind: str, live: Manifest, webhooks: list[Manifest]) -> None:
        if not webhooks:
            await self._delete(kind, live)
            return
        manifest = {"apiVersion": _API_VERSION, "kind": kind, "metadata": {"name": self._name}}
        await self._client.apply({**manifest, "webhooks": webhooks}, force=True)
        _log.info("webhooks put back", configuration=kind, name=self._name)

    def _is_ours(self, live: Manifest) -> bool:
        return any(entry.get("manager") == self._client.field_manager for entry in _rule_owners(live))

    def _foreign_manager(self, live: Manifest) -> str:
        """Return another manager, such as Helm, that owns the webhooks; empty if there is none.

        Its next upgrade must not conflict with us. A manager that only sets the CA bundle, as cert-manager does,
        does not own them.
        """
        managers = (str(entry.get("manager")) for entry in _rule_owners(live))
        return next((each for each in managers if each != self._client.field_manager), "")

    async def _keep_conversion(self, crd: str, bundle: bytes) -> None:
        client_config = self._endpoint.client_config(self._conversion_path, bundle)
        conversion = {
            "strategy": "Webhook",
            "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client_config},
        }
        live = await self._live(_CRD, crd)
        if not live:
            return  # not installed yet: the next check tries again
        present = live["spec"].get("conversion", {})
        if _contains(present, conversion):
            return
        patch: Manifest = {"spec": {"conversion": _whole(conversion)}}
        if self._temporary:
            patch["metadata"] = {"annotations": _note(live, present)}
        elif _replaced(live) is not None:  # left behind by a process that was killed
            patch["metadata"] = {"annotations": {_REPLACED: None}}
        await self._client.patch(_CRD, crd, patch)
        _log.info("conversion registered", crd=crd)

    async def _put_back_conversion(self, crd: str, conversion: Manifest) -> None:
        await self._client.patch(
            _CRD,
            crd,
            {"metadata": {"annotations": {_REPLACED: None}}, "spec": {"conversion": _whole(conversion)}},
        )
        _log.info("conversion put back", crd=crd)


def _rule_owners(live: Manifest) -> list[Manifest]:
    """Return the entries of `managedFields` that own the rules of a webhook."""
    return [
        entry
        for entry in (live.get("metadata") or {}).get("managedFields") or ()
        if any(
            "f:rules" in webhook
            for webhook in ((entry.get("fieldsV1") or {}).get("f:webhooks") or {}).values()
        )
    ]


def _address(webhook: Manifest) -> str:
    """Return the URL of a webhook, or that of its Service."""
    config = webhook.get("clientConfig") or {}
    service = config.get("service")
    if not service:
        return str(config.get("url", ""))
    origin = f"{service.get('name')}.{service.get('namespace')}.svc:{service.get('port', 443)}"
    return f"https://{origin}{service.get('path', '')}"


def _replaced(live: Manifest) -> str | None:
    """Return what a temporary registration replaced; None if this is not one."""
    annotations: dict[str, str] = (live.get("metadata") or {}).get("annotations") or {}
    return annotations.get(_REPLACED)


def _note(live: Manifest, content: Any) -> dict[str, str]:
    """Return the annotation with what a temporary registration replaces.

    One that is there already comes from a process that was killed: what it replaced is what to put back.
    """
    replaced = _replaced(live)
    return {_REPLACED: msgspec.json.encode(content or []).decode() if replaced is None else replaced}


def _whole(conversion: Manifest) -> Manifest:
    """Return a conversion as a merge patch that leaves nothing of another one: a Service excludes a URL."""
    webhook = conversion.get("webhook") if conversion else None
    if not webhook:
        return {"strategy": "None", "webhook": None}
    config = {key: webhook["clientConfig"].get(key) for key in ("caBundle", "service", "url")}
    return {**conversion, "webhook": {**webhook, "clientConfig": config}}


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
