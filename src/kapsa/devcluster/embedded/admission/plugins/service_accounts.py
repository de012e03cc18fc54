"""ServiceAccount: the account of a pod must exist; its token is mounted, and its secrets may be restricted."""

from __future__ import annotations

from collections.abc import Iterator

from kapsa.devcluster.embedded.admission.plugin import Object, Plugin, forbidden
from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.requests.mutations import WriteRequest

__all__ = ["ServiceAccounts"]

_DEFAULT_ACCOUNT = "default"
_WAITS = (0.0, 0.0, 0.0, *(0.1,) * 10)
"""Seconds between the looks for a default account: a controller usually needs a turn of the event loop."""
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105  a path
_VOLUME_PREFIX = "kube-api-access-"
_MIRROR = "kubernetes.io/config.mirror"
_ENFORCE_SECRETS = "kubernetes.io/enforce-mountable-secrets"
_CONTAINERS = (("initContainers", "init container"), ("containers", "container"))
_EPHEMERAL = (("ephemeralContainers", "ephemeral container"),)


class ServiceAccounts(Plugin):
    """The ServiceAccount plugin of the real server."""

    resources = frozenset({("", "pods")})

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object:
        if old is not None or write.subresource:
            return obj
        if _MIRROR in (obj["metadata"].get("annotations") or {}):
            _check_mirror(write, obj)
            return obj
        spec = obj["spec"]
        name = spec.get("serviceAccountName") or _DEFAULT_ACCOUNT
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        account = await self._account(write.namespace, name)
        if account is None:
            why = f'error looking up service account {write.namespace}/{name}: serviceaccount "{name}" not found'
            raise forbidden(write, obj, why)
        if account.get("imagePullSecrets") and not spec.get("imagePullSecrets"):
            spec["imagePullSecrets"] = account["imagePullSecrets"]
        if _wants_token(spec, account):
            self._mount(spec)
        # As in the real server, a pod is checked before the fields of its spec are validated.
        await self.validate(write, obj, old)
        return obj

    async def _account(self, namespace: str, name: str) -> Object | None:
        """Return an account. Wait for the default one of a new namespace if a controller is about to create it."""
        key = f"{namespace}/{name}"
        account = self._object("", "serviceaccounts", key)
        if account is not None or name != _DEFAULT_ACCOUNT or not self._backend.creates_accounts:
            return account
        for seconds in _WAITS:
            await self._backend.clock.sleep(seconds)
            account = self._object("", "serviceaccounts", key)
            if account is not None:
                return account
        return None

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        is_create = old is None and not write.subresource
        if not is_create and write.subresource != "ephemeralcontainers":
            return
        if is_create and _MIRROR in (obj["metadata"].get("annotations") or {}):
            _check_mirror(write, obj)
            return
        name = obj["spec"].get("serviceAccountName") or _DEFAULT_ACCOUNT
        account = self._object("", "serviceaccounts", f"{write.namespace}/{name}") or {}
        enforced = ((account.get("metadata") or {}).get("annotations") or {}).get(_ENFORCE_SECRETS, "")
        if enforced.lower() in ("1", "t", "true"):
            fields = _CONTAINERS if is_create else _EPHEMERAL
            if why := _unlisted_secret(obj["spec"], account, fields):
                raise forbidden(write, obj, why)

    def _mount(self, spec: Object) -> None:
        volume = names.generate(_VOLUME_PREFIX, self._backend.random)
        mounted = False
        for field in ("initContainers", "containers"):
            for container in spec.get(field) or ():
                mounts = container.get("volumeMounts") or []
                if any(mount.get("mountPath") == _TOKEN_PATH for mount in mounts):
                    continue
                mount = {"name": volume, "readOnly": True, "mountPath": _TOKEN_PATH}
                container["volumeMounts"] = [*mounts, mount]
                mounted = True
        if mounted:
            spec["volumes"] = [*(spec.get("volumes") or []), _token_volume(volume)]


def _wants_token(spec: Object, account: Object) -> bool:
    for source in (spec, account):
        if source.get("automountServiceAccountToken") is not None:
            return bool(source["automountServiceAccountToken"])
    return True


def _token_volume(name: str) -> Object:
    field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
    ]
    return {"name": name, "projected": {"sources": sources, "defaultMode": 0o644}}


def _check_mirror(write: WriteRequest, pod: Object) -> None:
    """Reject a static pod's mirror that refers to what only the API server resolves."""
    spec = pod["spec"]
    if spec.get("serviceAccountName"):
        raise forbidden(write, pod, "a mirror pod may not reference service accounts")
    if any(_secrets_of_pod(spec)):
        raise forbidden(write, pod, "a mirror pod may not reference secrets")
    for volume in spec.get("volumes") or ():
        sources = (volume.get("projected") or {}).get("sources") or ()
        if any(source.get("serviceAccountToken") is not None for source in sources):
            raise forbidden(write, pod, "a mirror pod may not use ServiceAccountToken volume projections")


def _secrets_of_pod(spec: Object) -> Iterator[str]:
    yield from (each.get("name", "") for each in spec.get("imagePullSecrets") or ())
    for volume in spec.get("volumes") or ():
        if volume.get("secret"):
            yield volume["secret"].get("secretName", "")
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("secret"):
                yield source["secret"].get("name", "")
    for field, _ in (*_CONTAINERS, *_EPHEMERAL):
        for container in spec.get(field) or ():
            yield from (name for _, name in _secrets_of_container(container))


def _secrets_of_container(container: Object) -> Iterator[tuple[str, str]]:
    """Yield what refers to a secret, in the real server's words, and the name of the secret."""
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("secretKeyRef")
        if reference is not None:
            yield f"envVar {variable['name']}", reference.get("name", "")
    for source in container.get("envFrom") or ():
        if source.get("secretRef") is not None:
            yield "envFrom", source["secretRef"].get("name", "")


def _unlisted_secret(spec: Object, account: Object, fields: tuple[tuple[str, str], ...]) -> str:
    """Return the error for the first secret that a restricted account does not list, "" if it lists all."""
    who = account["metadata"]["name"]
    listed = {each.get("name") for each in account.get("secrets") or ()}
    rest = f"is not allowed because service account {who} does not reference that"
    if fields is _CONTAINERS:
        for volume in spec.get("volumes") or ():
            name = (volume.get("secret") or {}).get("secretName")
            if name is not None and name not in listed:
                return f'volume with secret.secretName="{name}" {rest} secret'
    for field, title in fields:
        for container in spec.get(field) or ():
            for what, name in _secrets_of_container(container):
                if name not in listed:
                    who_refers = f"{title} {container['name']} with {what}"
                    return f'{who_refers} referencing secret.secretName="{name}" {rest} secret'
    if fields is _CONTAINERS:
        pulled = {each.get("name") for each in account.get("imagePullSecrets") or ()}
        for index, each in enumerate(spec.get("imagePullSecrets") or ()):
            if each.get("name") not in pulled:
                return f'imagePullSecrets[{index}].name="{each.get("name")}" {rest} imagePullSecret'
    return ""
