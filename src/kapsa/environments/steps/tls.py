"""The TLS step: the certificate of the environment's host is there, as cert-manager's Certificate says."""

from __future__ import annotations

from typing import ClassVar

from kapsa.adapters.manifests.health import object_health
from kapsa.environments.domains.routes import CERTIFICATE, INGRESS, ISSUER_ANNOTATIONS
from kapsa.environments.objects.copies import SECRET
from kapsa.environments.objects.reserved_names import ROUTE, WILDCARD_SECRET
from kapsa.environments.resources.environment import Phase
from kapsa.environments.steps.route import rendered_route
from kapsa.environments.steps.step import Done, Outcome, StepFailure, Waiting
from kapsa.environments.visit import Manifest, Visit
from kapsa.runtime import UnknownKind, kind_of

__all__ = ["TlsStep"]


class TlsStep:
    """Needs the route. Writes nothing: cert-manager makes the Certificate from the Ingress."""

    name: ClassVar[str] = "tls"
    condition: ClassVar[str] = "TLSReady"
    phase: ClassVar[Phase] = "Deploying"

    async def run(self, visit: Visit) -> Outcome:
        wanted = visit.host is not None and visit.environment.spec.ingress.tls.enabled
        ingress = rendered_route(visit) or visit.ctx.get(INGRESS, ROUTE, namespace=visit.place)
        if not wanted or ingress is None or not ingress["spec"].get("tls"):
            by_gateway = wanted and ingress is None and visit.settings.route_kind == "HTTPRoute"
            return Done(reason="TerminatedByGateway" if by_gateway else "NotRequested")
        secret = _secret_of(ingress)
        if not secret:
            return Done("the ingress controller's default certificate is used", reason="DefaultCertificate")
        if secret == WILDCARD_SECRET:
            return Done("the wildcard certificate of the DomainPool is used", reason="Wildcard")
        if _names_issuer(ingress):
            return await self._issued(visit, secret)
        return _given(visit, secret)

    async def _issued(self, visit: Visit, name: str) -> Outcome:
        visit.interests.note(visit.ctx.key, CERTIFICATE, name, namespace=visit.place)
        certificate = visit.ctx.get(CERTIFICATE, name, namespace=visit.place)
        if certificate is None:
            if not await _is_served(visit):
                return Done("cert-manager is not installed, so nobody issues it", reason="NoCertManager")
            return Waiting(message=f"cert-manager makes Certificate {name}", reason="CertificatePending")
        if not any(
            condition.get("type") == "Ready"
            for condition in (certificate.get("status") or {}).get("conditions") or ()
        ):
            return Waiting(message=f"Certificate {name} is being issued", reason="CertificatePending")
        found = object_health(certificate)
        if found.state == "Current":
            return Done(f"Certificate {name} is ready", reason="CertificateReady")
        return Waiting(message=f"Certificate {name}: {found.message}", reason="CertificatePending")


def _secret_of(ingress: Manifest) -> str:
    return next((str(each.get("secretName") or "") for each in ingress["spec"]["tls"]), "")


def _names_issuer(ingress: Manifest) -> bool:
    """Whether cert-manager makes a Certificate from this Ingress, which it does for an annotation."""
    return any(name in ISSUER_ANNOTATIONS for name in ingress["metadata"].get("annotations") or ())


def _given(visit: Visit, name: str) -> Outcome:
    """A Secret that somebody else fills."""
    visit.interests.note(visit.ctx.key, SECRET, name, namespace=visit.place)
    if visit.ctx.get(SECRET, name, namespace=visit.place) is None:
        return StepFailure(
            reason="CertificateMissing",
            message=f"there is no Secret {name} with a certificate, and no issuer that would make it",
            object=f"Secret {name}",
            hint="Render the Secret with the application, or leave ingress.tls.secretName out.",
            after=None,
        )
    return Done(f"Secret {name} holds the certificate", reason="CertificateGiven")


async def _is_served(visit: Visit) -> bool:
    try:
        await visit.ctx.client.discovery.resource(kind_of(CERTIFICATE))
    except UnknownKind:
        return False
    return True
