"""The TLS step: waits for the certificate of the environment's host."""

from __future__ import annotations

from typing import ClassVar

from kapsa.adapters.manifests.health import object_health
from kapsa.environments.hosts.routes import CERTIFICATE, INGRESS
from kapsa.environments.hosts.routing_rules import ISSUER_ANNOTATIONS
from kapsa.environments.namespace_objects.copies import SECRET
from kapsa.environments.namespace_objects.reserved_names import ROUTE
from kapsa.environments.resources.environment import Phase
from kapsa.environments.step_run import Manifest, StepRun
from kapsa.environments.steps.route import rendered_route, uses_wildcard
from kapsa.environments.steps.step import Done, Outcome, StepFailure, Waiting
from kapsa.runtime import UnknownKind, kind_of

__all__ = ["TlsStep"]


class TlsStep:
    """The step that waits for the certificate of cert-manager. Needs the route, writes nothing."""

    name: ClassVar[str] = "tls"
    condition: ClassVar[str] = "TLSReady"
    phase: ClassVar[Phase] = "Deploying"

    async def run(self, visit: StepRun) -> Outcome:
        requested = visit.host is not None and visit.environment.spec.ingress.tls.enabled
        ingress = rendered_route(visit) or visit.ctx.get(INGRESS, ROUTE, namespace=visit.namespace)
        if not requested or ingress is None or not ingress["spec"].get("tls"):
            by_gateway = requested and ingress is None and visit.settings.route_kind == "HTTPRoute"
            return Done(reason="TerminatedByGateway" if by_gateway else "NotRequested")
        secret = _secret_of(ingress)
        if not secret and rendered_route(visit) is None and uses_wildcard(visit):
            message = "the ingress controller serves the wildcard certificate of the DomainPool by default"
            return Done(message, reason="Wildcard")
        if not secret:
            return Done("the ingress controller's default certificate is used", reason="DefaultCertificate")
        if _names_issuer(ingress):
            return await self._issued(visit, secret)
        return _given(visit, secret)

    async def _issued(self, visit: StepRun, name: str) -> Outcome:
        certificate = visit.ctx.get(CERTIFICATE, name, namespace=visit.namespace, track=True)
        if certificate is None:
            if not await _is_served(visit):
                return Done("cert-manager is not installed: no certificate is issued", reason="NoCertManager")
            return Waiting(
                message=f"waiting for cert-manager to create Certificate {name}", reason="CertificatePending"
            )
        if not any(
            condition.get("type") == "Ready"
            for condition in (certificate.get("status") or {}).get("conditions") or ()
        ):
            return Waiting(message=f"Certificate {name} is being issued", reason="CertificatePending")
        verdict = object_health(certificate)
        if verdict.state == "Current":
            return Done(f"Certificate {name} is ready", reason="CertificateReady")
        return Waiting(message=f"Certificate {name}: {verdict.message}", reason="CertificatePending")


def _secret_of(ingress: Manifest) -> str:
    return next((str(each.get("secretName") or "") for each in ingress["spec"]["tls"]), "")


def _names_issuer(ingress: Manifest) -> bool:
    """Return whether an annotation makes cert-manager create a Certificate for this Ingress."""
    return any(name in ISSUER_ANNOTATIONS for name in ingress["metadata"].get("annotations") or ())


def _given(visit: StepRun, name: str) -> Outcome:
    """Return the outcome for a Secret that the operator does not fill."""
    if visit.ctx.get(SECRET, name, namespace=visit.namespace, track=True) is None:
        return StepFailure(
            reason="CertificateMissing",
            message=f"Secret {name} with the certificate does not exist, and no issuer creates it",
            object=f"Secret {name}",
            hint="Deploy the Secret with the application, or remove ingress.tls.secretName from the Environment.",
            after=None,
        )
    return Done(f"Secret {name} holds the certificate", reason="CertificateGiven")


async def _is_served(visit: StepRun) -> bool:
    try:
        await visit.ctx.client.discovery.resource(kind_of(CERTIFICATE))
    except UnknownKind:
        return False
    return True
