"""The parts of the API, built from the services and settings of a manager."""

from kapsa.adapters.variables import SettingsError
from kapsa.fleet.api.application import ApiParts
from kapsa.fleet.api.authentication.authenticator import CallerAuthenticator
from kapsa.fleet.api.authentication.jwks import IssuerKeys
from kapsa.fleet.api.authentication.keys import LocalKey
from kapsa.fleet.api.authentication.oidc import OidcClient, OidcFlow
from kapsa.fleet.api.authentication.sessions import SessionKeeper
from kapsa.fleet.api.authentication.tokens import TokenVerifier
from kapsa.fleet.api.use_cases import UseCases
from kapsa.fleet.infrastructure.local_keys import LOCAL_ISSUER, LocalKeys
from kapsa.fleet.infrastructure.requests.browser_sessions import PostgresBrowserSessions
from kapsa.fleet.server.services import ManagerServices
from kapsa.fleet.settings import PREFIX, FleetSettings

__all__ = ["build_api_parts"]

_ID_TOKEN_CLAIMS = ("exp", "iat", "iss", "aud", "sub", "nonce")


def build_api_parts(services: ManagerServices) -> ApiParts:
    """Return the parts of the API of a manager.

    Raises SettingsError if signing in with a browser is configured by half.
    """
    settings = services.settings
    return ApiParts(
        use_cases=_use_cases(services),
        authenticator=CallerAuthenticator(
            _token_verifier(services), SessionKeeper(PostgresBrowserSessions(services.database))
        ),
        rate_limits=services.rate_limits,
        idempotency_keys=services.idempotency_keys,
        check_database=services.database.check,
        registry=services.telemetry.collectors,
        oidc=_oidc(services),
        carries_out_rollouts=True,
        accepts_pasted_tokens=not settings.jwt_issuer,
    )


def _use_cases(services: ManagerServices) -> UseCases:
    registry = services.registry
    return UseCases(
        operators=registry.operators,
        clusters=registry.clusters,
        audit_log=services.audit_log,
        crds=registry.crds,
        health=services.health.operators,
        deployments=services.rollouts.deployments,
        approvals=services.rollouts.approvals,
    )


def _token_verifier(services: ManagerServices) -> TokenVerifier:
    settings = services.settings
    if not settings.jwt_issuer:
        key = LocalKeys(settings.directory).ensure_signing_key().public_key()
        return TokenVerifier(LocalKey(key), issuer=LOCAL_ISSUER, audience=settings.jwt_audience)
    return TokenVerifier(
        IssuerKeys(services.http_client, settings.jwt_jwks_url),
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
        roles_claim=settings.jwt_roles_claim,
    )


def _oidc(services: ManagerServices) -> OidcFlow | None:
    settings = services.settings
    if not settings.oidc_client_id:
        return None
    _check_oidc(settings)
    client = OidcClient(
        issuer=settings.jwt_issuer,
        client_id=settings.oidc_client_id,
        client_secret=settings.oidc_client_secret,
        redirect_url=settings.public_url.rstrip("/") + "/auth/callback",
        roles_claim=settings.jwt_roles_claim,
    )
    id_tokens = TokenVerifier(
        IssuerKeys(services.http_client, settings.jwt_jwks_url),
        issuer=settings.jwt_issuer,
        audience=settings.oidc_client_id,
        roles_claim=settings.jwt_roles_claim,
        required=_ID_TOKEN_CLAIMS,
    )
    return OidcFlow(services.http_client, client, id_tokens)


def _check_oidc(settings: FleetSettings) -> None:
    for name in ("jwt_issuer", "public_url"):
        if not getattr(settings, name):
            raise SettingsError(
                f"{PREFIX}OIDC_CLIENT_ID is set, so {PREFIX}{name.upper()} must be set, too: "
                "the browser goes to the issuer and comes back to the public address"
            )
