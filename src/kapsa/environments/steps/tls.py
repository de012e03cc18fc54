"""The TLS step: the certificate of the environment's host is there, as cert-manager's Certificate says."""

from __future__ import annotations

from typing import ClassVar

from kapsa.environments.health import health
from kapsa.environments.resources.environment import Phase
from kapsa.environments.routes import CERTIFICATE, INGRESS
from kapsa.environments.steps.copies import SECRET
from kapsa.environments.steps.route import ROUTE, WILDCARD_SECRET
from kapsa.environments.steps.step import Done, Failed, Outcome, Visit, Waiting
from kapsa.runtime.binding import kind_of
from kapsa.runtime.errors import UnknownKind

__all__ = ["TlsStep"]


class TlsStep:
    """Needs the route. Writes nothing: cert-manager makes the Certificate from the Ingress."""

    name: ClassVar[str] = "route"
    condition: ClassVar[str] = "TLSReady"
    phase: ClassVar[Phase] = "Deploying"

    async def run(self, visit: Visit) -> Outcome:
        tls = visit.environment.spec.ingress.tls
        ingress = visit.ctx.get(INGRESS, ROUTE, namespace=visit.place)
        if visit.host is None or not tls.enabled or ingress is None:
            by_gateway = visit.host is not None and tls.enabled and visit.settings.route_kind == "HTTPRoute"
            return Done(reason="TerminatedByGateway" if by_gateway else "NotRequested")
        secret = _secret_of(ingress)
        if not secret:
            return Done("the ingress controller's default certificate is used", reason="DefaultCertificate")
        if secret == WILDCARD_SECRET:
            return Done("the wildcard certificate of the DomainPool is used", reason="Wildcard")
        if visit.issuer is None:
            return _given(visit, secret)
        return await self._issued(visit, secret)

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
        found = health(certificate)
        if found.state == "Current":
            return Done(f"Certificate {name} is ready", reason="CertificateReady")
        return Waiting(message=f"Certificate {name}: {found.message}", reason="CertificatePending")


def _secret_of(ingress: dict[str, object]) -> str:
    spec = ingress["spec"]
    assert isinstance(spec, dict)
    return next((str(each.get("secretName") or "") for each in spec.get("tls") or ()), "")


def _given(visit: Visit, name: str) -> Outcome:
    """A Secret that somebody else fills."""
    visit.interests.note(visit.ctx.key, SECRET, name, namespace=visit.place)
    if visit.ctx.get(SECRET, name, namespace=visit.place) is None:
        return Failed(
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
