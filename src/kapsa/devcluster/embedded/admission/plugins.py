"""Built-in admission that depends on other objects: service accounts of pods, the default class of claims."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.requests.mutations import DeleteRequest, WriteRequest
from kapsa.devcluster.wire import status_errors as errors

__all__ = ["DefaultStorageClass", "ServiceAccounts"]

Object = dict[str, Any]

_DEFAULT_ACCOUNT = "default"
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105  a path
_VOLUME_PREFIX = "kube-api-access-"
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


class _Plugin:
    """Admission that only changes new objects."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        return

    async def validate_deletion(self, deletion: DeleteRequest, obj: Object) -> None:
        return


class ServiceAccounts(_Plugin):
    """Requires a pod's service account to exist, and mounts its token."""

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object:
        if old is not None or write.subresource or (write.info.group, write.info.resource) != ("", "pods"):
            return obj
        name = obj["spec"].get("serviceAccountName") or _DEFAULT_ACCOUNT
        stored = self._backend.store.collection("", "serviceaccounts").get(f"{write.namespace}/{name}")
        account = None if stored is None else decode(stored)
        if account is None and name != _DEFAULT_ACCOUNT:
            # A controller creates the default account of each namespace; it may be late or disabled.
            why = f'error looking up service account {write.namespace}/{name}: serviceaccount "{name}" not found'
            raise errors.forbidden(write.info, write.name, why)
        if (
            account is not None
            and account.get("imagePullSecrets")
            and not obj["spec"].get("imagePullSecrets")
        ):
            obj["spec"]["imagePullSecrets"] = account["imagePullSecrets"]
        if _wants_token(obj["spec"], account or {}):
            self._mount(obj["spec"])
        return obj

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


class DefaultStorageClass(_Plugin):
    """Sets the default class on a claim without one."""

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object:
        is_claim = (write.info.group, write.info.resource) == ("", "persistentvolumeclaims")
        if old is not None or not is_claim or obj["spec"].get("storageClassName") is not None:
            return obj
        classes = [
            decode(stored)
            for stored in self._backend.store.collection("storage.k8s.io", "storageclasses").current()
        ]
        marked = [
            c for c in classes if (c["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true"
        ]
        if marked:
            newest = max(marked, key=lambda c: (c["metadata"]["creationTimestamp"], c["metadata"]["name"]))
            obj["spec"]["storageClassName"] = newest["metadata"]["name"]
        return obj
