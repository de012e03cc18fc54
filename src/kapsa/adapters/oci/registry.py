"""A client of the OCI distribution API: the digest of an image, and its deletion.

A 404 means that the image does not exist. A 401 or 403 means that access is denied, and any other error
leaves it open. The difference decides whether an image is built.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from urllib.parse import urlencode, urljoin, urlsplit

import msgspec

from kapsa.adapters.errors import (
    AuthFailed,
    ExternalError,
    ExternalFailure,
    ExternalNotFound,
    Refused,
    Unreachable,
)
from kapsa.adapters.http.client import HttpClient, HttpResponse
from kapsa.adapters.oci.credentials import RegistryCredentials
from kapsa.adapters.oci.image_reference import DOCKER_HUB, ImageReference, is_digest, split_endpoint
from kapsa.adapters.redaction import printable, redact
from kapsa.runtime import Clock, SystemClock

__all__ = ["ImageRegistry"]

_HUB_HOST = "registry-1.docker.io"
_MANIFEST_TYPES = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_MANIFEST_LIMIT = 4 * 1024 * 1024
_TOKEN_LIMIT = 256 * 1024
_REDIRECTS = 3
_CHALLENGE = re.compile(r'([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_MARGIN = 10.0
"""Seconds before its expiry from which a token is no longer used."""


class _TokenResponse(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""
    expires_in: float = 60.0


class _Token(msgspec.Struct, frozen=True):
    header: str
    expires: float


class ImageRegistry:
    """A client of one registry with one set of credentials."""

    def __init__(
        self,
        endpoint: str,
        http: HttpClient,
        *,
        credentials: RegistryCredentials | None = None,
        insecure: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._http = http
        self._credentials = credentials
        self._insecure = insecure
        self._clock = clock or SystemClock()
        self._base, *self._plain = _bases(endpoint, insecure)
        self._tokens: dict[str, _Token] = {}

    async def verify(self) -> None:
        """Check that the endpoint is a registry which accepts the credentials.

        Raises `ExternalError`, which is `retryable` if a later try can succeed.
        """
        response = await self._request("GET", "/v2/", scope="")
        if response.status == 404:
            raise ExternalNotFound(
                f"{self._base} is not an image registry: it does not serve /v2/",
                hint="Check the endpoint of the Registry",
                reason="NoRegistry",
            )
        if response.status != 200:
            raise self._unexpected(response, "/v2/")

    async def digest(self, image: ImageReference) -> str | None:
        """Return the digest of an image by its tag or digest, or None if the registry does not have it.

        Raises `ExternalError` when there is no clear answer. It is `retryable` if a later try can succeed.
        """
        path = f"/v2/{image.path}/manifests/{image.digest or image.tag or 'latest'}"
        scope = f"repository:{image.path}:pull"
        response = await self._request("HEAD", path, scope=scope, accept=_MANIFEST_TYPES)
        digest = response.header("Docker-Content-Digest")
        if response.status in (405, 501) or (response.status == 200 and not is_digest(digest)):
            # Some registries do not support HEAD, and some do not return the digest: compute it from the content.
            response = await self._request("GET", path, scope=scope, accept=_MANIFEST_TYPES)
            digest = f"sha256:{hashlib.sha256(response.body).hexdigest()}"
        if response.status == 404:
            return None
        if response.status != 200:
            raise self._unexpected(response, path)
        return digest

    async def delete(self, image: ImageReference) -> bool:
        """Delete an image by its digest, and with it all its tags.

        Return False if the registry does not have it.

        Raises `ExternalError` when the image may still exist.
        """
        if not image.digest:
            raise Refused(
                f"{image} cannot be deleted without its digest: the tag may refer to another image by now"
            )
        path = f"/v2/{image.path}/manifests/{image.digest}"
        response = await self._request("DELETE", path, scope=f"repository:{image.path}:delete")
        if response.status == 404:
            return False
        if response.status in (
            400,
            405,
            501,
        ):  # by the specification, and by registries that do not implement it
            raise Refused(
                f"{self._base} does not delete images ({response.status}){self._excerpt(response)}",
                reason="DeletionUnsupported",
                hint="Enable deletion in the registry, or set spec.imageRetention of the Registry to keep",
            )
        if response.status not in (200, 202, 204):
            raise self._unexpected(response, path)
        return True

    async def _request(self, method: str, path: str, *, scope: str, accept: str = "") -> HttpResponse:
        await self._choose_protocol()
        headers = {"Accept": accept} if accept else {}
        url = f"{self._base}{path}"
        token = self._tokens.get(scope)
        valid = token is not None and token.expires > self._clock.monotonic()
        response = await self._send(method, url, headers, token.header if valid and token else "")
        if response.status == 401:
            self._tokens.pop(scope, None)
            authorization = await self._authorize(response, scope)
            response = await self._send(method, url, headers, authorization)
        if response.status in (401, 403):
            raise self._unauthorized(response, path)
        return response

    async def _choose_protocol(self) -> None:
        """Detect whether the registry serves https or http, if the endpoint allows both."""
        if self._plain:
            # Concurrent requests detect it independently, with the same result.
            secure, plain = self._base, self._plain[0]
            try:
                await self._http.fetch("GET", f"{secure}/v2/", verify=False, limit=_MANIFEST_LIMIT)
            except Unreachable:
                await self._http.fetch("GET", f"{plain}/v2/", limit=_MANIFEST_LIMIT)
                self._base = plain
            self._plain = []

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], authorization: str
    ) -> HttpResponse:
        """Send one request.

        Redirects are followed, but credentials are sent to the registry's own origin only.
        """
        origin = _origin(url)
        for _ in range(_REDIRECTS + 1):
            sent = dict(headers)
            if authorization and _origin(url) == origin:
                sent["Authorization"] = authorization
            response = await self._http.fetch(
                method, url, headers=sent, verify=not self._insecure, limit=_MANIFEST_LIMIT
            )
            if response.status not in (301, 302, 303, 307, 308):
                return response
            url = self._redirected(url, response.header("Location"))
        raise ExternalFailure(f"{self._base}: more than {_REDIRECTS} redirects in a row")

    def _redirected(self, url: str, location: str) -> str:
        target = urljoin(url, location)
        if not location or urlsplit(target).scheme not in self._schemes:
            raise Refused(f"{self._base} redirects to an address without https")
        return target

    @property
    def _schemes(self) -> tuple[str, ...]:
        return ("https", "http") if self._insecure else ("https",)

    async def _authorize(self, response: HttpResponse, scope: str) -> str:
        """Return the Authorization header that a challenge asks for: a token, or a user name and password."""
        kind, parameters = _challenge(response.header("WWW-Authenticate"))
        if kind == "bearer":
            token = await self._fetch_token(parameters, scope)
            self._tokens[scope] = token
            return token.header
        if kind == "basic":
            if self._credentials is None:
                raise self._unauthorized(response, "")
            self._tokens[scope] = _Token(self._credentials.basic, float("inf"))
            return self._credentials.basic
        raise AuthFailed(f"{self._base} requires an unsupported kind of login", reason="UnknownChallenge")

    async def _fetch_token(self, parameters: Mapping[str, str], scope: str) -> _Token:
        realm = parameters.get("realm", "")
        if urlsplit(realm).scheme not in self._schemes or urlsplit(realm).username is not None:
            raise Refused(
                f"{self._base} has its token service at an address without https", reason="RealmRefused"
            )
        # The scope of the challenge comes first: the registry may require a wider one.
        query = {"service": parameters.get("service", ""), "scope": parameters.get("scope", "") or scope}
        query = {key: value for key, value in query.items() if value}
        credentials = self._credentials
        if credentials is not None and credentials.identity_token:
            form = {
                **query,
                "grant_type": "refresh_token",
                "client_id": "kapsa",
                "refresh_token": credentials.identity_token,
            }
            response = await self._http.fetch(
                "POST",
                realm,
                headers={"Content-Type": "application/x-www-form-urlencoded"},
                body=urlencode(form).encode(),
                verify=not self._insecure,
                limit=_TOKEN_LIMIT,
            )
        else:
            headers = {"Authorization": credentials.basic} if credentials is not None else {}
            joined = "&" if urlsplit(realm).query else "?"
            response = await self._http.fetch(
                "GET",
                f"{realm}{joined}{urlencode(query)}" if query else realm,
                headers=headers,
                verify=not self._insecure,
                limit=_TOKEN_LIMIT,
            )
        return self._token(response)

    def _token(self, response: HttpResponse) -> _Token:
        if response.status in (400, 401, 403):
            raise self._unauthorized(response, "")
        if response.status != 200:
            raise self._unexpected(response, "token service")
        try:
            parsed = msgspec.json.decode(response.body, type=_TokenResponse)
        except msgspec.DecodeError:
            raise ExternalFailure(f"{self._base}: the token service did not return a token") from None
        text = parsed.token or parsed.access_token
        if not text or not text.isascii() or not text.isprintable():
            raise ExternalFailure(f"{self._base}: the token service did not return a token")
        lifetime = min(max(parsed.expires_in, 60.0), 3600.0)
        return _Token(f"Bearer {text}", self._clock.monotonic() + lifetime - _MARGIN)

    def _unauthorized(self, response: HttpResponse, path: str) -> ExternalError:
        problem = (
            "the credentials were rejected" if self._credentials is not None else "credentials are required"
        )
        hint = (
            "Check the Secret of the Registry, and the permissions of its user"
            if self._credentials is not None
            else "Refer to a Secret from spec.auth.secretRef of the Registry"
        )
        return AuthFailed(
            f"{self._base}{path}: {problem} ({response.status}){self._excerpt(response)}", hint=hint
        )

    def _unexpected(self, response: HttpResponse, path: str) -> ExternalError:
        message = f"{self._base}, {path}: unexpected status {response.status}{self._excerpt(response)}"
        if response.status == 429 or response.status >= 500:
            return Unreachable(message, retry_after=_seconds(response.header("Retry-After")))
        return ExternalFailure(message)

    def _excerpt(self, response: HttpResponse) -> str:
        secrets = self._credentials.secrets if self._credentials is not None else ()
        text = redact(printable(response.body[:2000].decode("utf-8", "replace")), secrets)
        return f": {' '.join(text.split())[:200]}" if text.strip() else ""


def _bases(endpoint: str, insecure: bool) -> list[str]:
    """Return the base URLs to try, in order. Plain http is used only if it is explicitly allowed."""
    scheme = endpoint.rpartition("://")[0]
    # The path of an endpoint is part of image names, not of the URL of the API.
    host = split_endpoint(endpoint)[0]
    if (
        scheme not in ("", "https", "http")
        or not host
        or not host.isprintable()
        or re.search(r"[@\s?#]", host)
    ):
        raise Refused(f"{endpoint[:120]!r} is not a valid registry endpoint")
    if scheme == "http" and not insecure:
        raise Refused(
            f"{endpoint} uses plain http, which would expose the credentials",
            hint="Use https, or set spec.insecure of the Registry",
        )
    if host == DOCKER_HUB:
        host = _HUB_HOST
    if scheme:
        return [f"{scheme}://{host}"]
    return [f"https://{host}", f"http://{host}"] if insecure else [f"https://{host}"]


def _challenge(header: str) -> tuple[str, dict[str, str]]:
    kind, _, rest = header.strip().partition(" ")
    parameters = {name.lower(): quoted or plain for name, quoted, plain in _CHALLENGE.findall(rest[:8192])}
    return kind.lower(), parameters


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()


def _seconds(text: str) -> float | None:
    return min(float(text), 3600.0) if text.isdigit() else None
