"""Certificate requests: their author, and CertificateApproval, CertificateSigning and CertificateSubjectRestriction."""

from __future__ import annotations

import base64
import binascii

from kapsa.devcluster.embedded.admission.plugin import Object, Plugin, forbidden
from kapsa.devcluster.embedded.authorization.authorizer import Authorizer
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.requests.mutations import WriteRequest
from kapsa.devcluster.wire.authorization import AccessAttributes

__all__ = ["CertificateAuthor", "CertificateRights", "CertificateSubjects"]

_SIGNER = "kubernetes.io/kube-apiserver-client"
_MASTERS = "system:masters"


_REQUESTS = ("certificates.k8s.io", "certificatesigningrequests")


class CertificateRights(Plugin):
    """The CertificateApproval and CertificateSigning plugins of the real server."""

    resources = frozenset({_REQUESTS})

    def __init__(self, backend: Backend, authorizer: Authorizer) -> None:
        super().__init__(backend)
        self._authorizer = authorizer

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        if old is None or self._authorizer.trusts(write.user):
            return
        signer = (old.get("spec") or {}).get("signerName") or ""
        if write.subresource == "approval" and not self._may(write, "approve", signer):
            raise forbidden(write, obj, f'user not permitted to approve requests with signerName "{signer}"')
        if (
            write.subresource == "status"
            and _signed(obj) != _signed(old)
            and not self._may(write, "sign", signer)
        ):
            raise forbidden(write, obj, f'user not permitted to sign requests with signerName "{signer}"')

    def _may(self, write: WriteRequest, verb: str, signer: str) -> bool:
        """Return whether the user has the right for a signer, or for all signers of its domain."""
        domain = signer.partition("/")[0]
        return any(
            self._authorizer.decide(
                AccessAttributes(
                    user=write.user,
                    verb=verb,
                    group="certificates.k8s.io",
                    version="*",
                    resource="signers",
                    name=name,
                )
            ).allowed
            for name in (signer, f"{domain}/*")
        )


def _signed(request: Object) -> tuple[object, object]:
    status = request.get("status") or {}
    return status.get("certificate"), status.get("conditions") or []


class CertificateSubjects(Plugin):
    """The CertificateSubjectRestriction plugin of the real server."""

    resources = frozenset({_REQUESTS})

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        spec = obj.get("spec") or {}
        if old is not None or write.subresource or spec.get("signerName") != _SIGNER:
            return
        if _MASTERS in _organizations(spec.get("request") or ""):
            why = f"use of {_SIGNER} signer with {_MASTERS} group is not allowed"
            raise forbidden(write, obj, why)


def _organizations(request: str) -> list[str]:
    """Return the organizations in the subject of a certificate request; none if it cannot be read."""
    from cryptography import x509

    try:
        parsed = x509.load_pem_x509_csr(base64.b64decode(request))
    except (ValueError, binascii.Error):
        return []
    return [str(each.value) for each in parsed.subject.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME)]


class CertificateAuthor(Plugin):
    """The author of a certificate request, which the server records and a client cannot choose.

    It comes after the webhooks, as in the real server, where the storage of requests does it.
    """

    resources = frozenset({_REQUESTS})

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object:
        if old is not None:
            return obj
        user = write.user
        author = {
            "username": user.username,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": dict(user.extra),
        }
        spec = {key: value for key, value in (obj.get("spec") or {}).items() if key not in author}
        return {**obj, "spec": spec | {key: value for key, value in author.items() if value}}
