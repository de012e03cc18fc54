"""The signing of approved certificate requests, for clients of the API server.

Other signers of kube-controller-manager are for kubelets, which the embedded engine simulates without certificates.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import datetime

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.controllers.machinery.conditions import is_true
from kapsa.devcluster.embedded.controllers.machinery.executor import Executor
from kapsa.devcluster.embedded.controllers.machinery.kinds import SIGNING_REQUEST, Object
from kapsa.devcluster.embedded.controllers.machinery.owner_controller import OwnerController
from kapsa.devcluster.embedded.controllers.machinery.plan import UpdateStatus, WritePlan
from kapsa.devcluster.embedded.controllers.machinery.queue import Key
from kapsa.devcluster.embedded.controllers.machinery.timestamps import render
from kapsa.devcluster.embedded.controllers.machinery.view import View

__all__ = ["RequestSigner", "SigningController", "plan"]

RequestSigner = Callable[[bytes, int | None], bytes]
"""Returns the certificate for a PKCS#10 request, both PEM, valid for a number of seconds or as long as possible."""

SIGNER = "kubernetes.io/kube-apiserver-client"
_OPTIONAL = ("digital signature", "key encipherment")
_REQUIRED = "client auth"


def plan(request: Object, sign: RequestSigner, now: datetime) -> WritePlan:
    """Plan the next step of a certificate request: signed, or failed if its usages are not those of a client."""
    plan = WritePlan()
    spec, status = request["spec"], request.get("status") or {}
    conditions = status.get("conditions") or []
    if spec.get("signerName") != SIGNER or status.get("certificate"):
        return plan
    if not is_true(conditions, "Approved") or is_true(conditions, "Failed"):
        return plan
    problem = _problem(spec.get("usages") or [])
    if problem:
        stamp = render(now)
        failed = {
            "type": "Failed",
            "status": "True",
            "reason": "SignerValidationFailure",
            "message": problem,
            "lastUpdateTime": stamp,
            "lastTransitionTime": stamp,
        }
        status = {**status, "conditions": [*conditions, failed]}
    else:
        certificate = sign(base64.b64decode(spec["request"]), spec.get("expirationSeconds"))
        status = {**status, "certificate": base64.b64encode(certificate).decode()}
    plan.do(UpdateStatus(SIGNING_REQUEST, {**request, "status": status}))
    return plan


def _problem(usages: list[str]) -> str:
    """Return what is wrong with the usages of a client's certificate; empty if nothing is."""
    for usage in usages:
        if usage not in (*_OPTIONAL, _REQUIRED):
            return f"invalid usage for client certificate: {usage}"
    return "" if _REQUIRED in usages else f"missing required usage for client certificate: {_REQUIRED}"


class SigningController(OwnerController):
    """Controller that signs approved certificate requests."""

    kind, account = SIGNING_REQUEST, "certificate-controller"

    def __init__(self, backend: Backend, view: View, executor: Executor, sign: RequestSigner) -> None:
        super().__init__(backend, view, executor)
        self._sign = sign

    async def sync(self, key: Key, owner: Object) -> None:
        await self.carry_out(key, plan(owner, self._sign, self.backend.clock.now()))
