"""Secrets of type kubernetes.io/service-account-token: filled with a token, and deleted with their account."""

from __future__ import annotations

import base64
from collections.abc import Callable

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.controllers.machinery.executor import Executor
from kapsa.devcluster.embedded.controllers.machinery.kinds import SECRET, SERVICE_ACCOUNT, Object
from kapsa.devcluster.embedded.controllers.machinery.plan import Delete, Update, WritePlan
from kapsa.devcluster.embedded.controllers.machinery.queue import Key, KeyQueue
from kapsa.devcluster.embedded.storage.store import Collection, StoreChange, Stored

__all__ = ["IssueToken", "TokenSecretController", "plan"]

IssueToken = Callable[[Stored, str], str]
"""Returns a token of an account that is bound to the Secret of this name."""

TYPE = "kubernetes.io/service-account-token"
_ACCOUNT = "kubernetes.io/service-account.name"
_ACCOUNT_UID = "kubernetes.io/service-account.uid"
_MARK = TYPE.encode()


def plan(secret: Object, account: Stored | None, certificate: str, issue: IssueToken) -> WritePlan:
    """Plan to delete a Secret whose account is gone, or to add what it lacks."""
    writes = WritePlan()
    meta = secret["metadata"]
    annotations = meta.get("annotations") or {}
    if account is None or annotations.get(_ACCOUNT_UID, account.uid) != account.uid:
        writes.do(Delete(SECRET, secret))
        return writes
    data = dict(secret.get("data") or {})
    missing = {}
    authority = _encoded(certificate)
    if certificate and data.get("ca.crt") != authority:
        missing["ca.crt"] = authority
    if not data.get("namespace"):
        missing["namespace"] = _encoded(meta["namespace"])
    if not data.get("token"):
        missing["token"] = _encoded(issue(account, meta["name"]))
    if missing:
        named = {**annotations, _ACCOUNT: account.name, _ACCOUNT_UID: account.uid}
        filled = {**secret, "metadata": {**meta, "annotations": named}, "data": {**data, **missing}}
        writes.do(Update(SECRET, filled))
    return writes


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class TokenSecretController:
    """Controller that fills such Secrets, and removes their traces when they or their accounts are deleted."""

    name = "serviceaccount-token-controller"

    def __init__(self, backend: Backend, executor: Executor, certificate: str, issue: IssueToken) -> None:
        self._executor = executor
        self._certificate = certificate
        self._issue = issue
        self._secrets = backend.store.collection("", "secrets")
        self._accounts = backend.store.collection("", "serviceaccounts")
        self._deleted: dict[Key, str] = {}
        """Accounts of Secrets that were deleted, whose references are to be removed."""
        self.queue = KeyQueue(self.name, self._process)

    def start(self) -> None:
        """Enqueue all such Secrets."""
        self._enqueue("")

    def follow(self, collection: Collection, change: StoreChange) -> None:
        """Enqueue a Secret that changes, or the Secrets of a deleted account."""
        if collection is self._secrets:
            if _MARK in change.object.body:
                key = (change.object.namespace, change.object.name)
                if change.type == "DELETED":
                    self._deleted[key] = _account_of(decode(change.object))
                self.queue.add(key)
        elif collection is self._accounts and change.type == "DELETED":
            self._enqueue(f"{change.object.namespace}/")

    def _enqueue(self, prefix: str) -> None:
        for stored in self._secrets.current(prefix):
            if _MARK in stored.body:
                self.queue.add((stored.namespace, stored.name))

    async def _process(self, key: Key) -> None:
        namespace, name = key
        stored = self._secrets.get(f"{namespace}/{name}")
        if stored is None:
            await self._forget(namespace, name, self._deleted.get(key, ""))
            self._deleted.pop(key, None)
            return
        self._deleted.pop(key, None)
        secret = decode(stored)
        if secret.get("type") != TYPE or secret["metadata"].get("deletionTimestamp"):
            return
        account = self._accounts.get(f"{namespace}/{_account_of(secret)}")
        await self._executor.run(plan(secret, account, self._certificate, self._issue))

    async def _forget(self, namespace: str, secret: str, account: str) -> None:
        """Remove a deleted Secret from the list of its account."""
        stored = self._accounts.get(f"{namespace}/{account}")
        if stored is None:
            return
        obj = decode(stored)
        listed = obj.get("secrets") or []
        kept = [each for each in listed if each.get("name") != secret]
        if len(kept) < len(listed):
            await self._executor.do(Update(SERVICE_ACCOUNT, {**obj, "secrets": kept}))


def _account_of(secret: Object) -> str:
    return str((secret["metadata"].get("annotations") or {}).get(_ACCOUNT, ""))
