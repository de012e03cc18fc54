"""A client of image registries, to the OCI distribution specification: is an image there, which digest has it, and away with it.

404 means that it is not there, 401 and 403 that we may not know, everything else that nobody knows yet. The difference
decides whether an image is built.
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
"""Seconds before its end at which a token is no longer used."""


class _TokenAnswer(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""
    expires_in: float = 60.0


class _Token(msgspec.Struct, frozen=True):
    header: str
    good_until: float


class ImageRegistry:
    """One registry, asked with one set of credentials."""

    def __init__(
        self,
        endpoint: str,
        outgoing: HttpClient,
        *,
        credentials: RegistryCredentials | None = None,
        insecure: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._outgoing = outgoing
        self._credentials = credentials
        self._insecure = insecure
        self._clock = clock or SystemClock()
        self._base, *self._plain = _bases(endpoint, insecure)
        self._tokens: dict[str, _Token] = {}

    async def verify(self) -> None:
        """Make sure that there is a registry, and that it takes the credentials.

        :raises ExternalError: with what is wrong; `retryable` says whether a later try can succeed.
        """
        answer = await self._ask("GET", "/v2/", scope="")
        if answer.status == 404:
            raise ExternalNotFound(
                f"{self._base} is no image registry: it has no /v2/",
                hint="Check the Registry's endpoint",
                reason="NoRegistry",
            )
        if answer.status != 200:
            raise self._unexpected(answer, "/v2/")

    async def digest(self, image: ImageReference) -> str | None:
        """The digest of an image by its tag (or digest); None if the registry says that it has none.

        :raises ExternalError: nobody can tell; `retryable` says whether a later try can.
        """
        path = f"/v2/{image.path}/manifests/{image.digest or image.tag or 'latest'}"
        scope = f"repository:{image.path}:pull"
        answer = await self._ask("HEAD", path, scope=scope, accept=_MANIFEST_TYPES)
        told = answer.header("Docker-Content-Digest")
        if answer.status in (405, 501) or (answer.status == 200 and not is_digest(told)):
            # Some registries know no HEAD, and some do not tell the digest: it is that of the content.
            answer = await self._ask("GET", path, scope=scope, accept=_MANIFEST_TYPES)
            told = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise self._unexpected(answer, path)
        return told

    async def delete(self, image: ImageReference) -> bool:
        """Delete an image by its digest, and so all its tags; False if the registry has none.

        :raises ExternalError: it is still there, as far as anybody knows.
        """
        if not image.digest:
            raise Refused(f"{image} has no digest: another image may have its tag by now")
        path = f"/v2/{image.path}/manifests/{image.digest}"
        answer = await self._ask("DELETE", path, scope=f"repository:{image.path}:delete")
        if answer.status == 404:
            return False
        if answer.status in (
            400,
            405,
            501,
        ):  # the specification's words, and those of registries that do not know it
            raise Refused(
                f"{self._base} deletes no images ({answer.status}){self._said(answer)}",
                reason="DeletionUnsupported",
                hint="Allow it in the registry, or set spec.imageRetention of the Registry to keep",
            )
        if answer.status not in (200, 202, 204):
            raise self._unexpected(answer, path)
        return True

    async def _ask(self, method: str, path: str, *, scope: str, accept: str = "") -> HttpResponse:
        await self._settle()
        headers = {"Accept": accept} if accept else {}
        url = f"{self._base}{path}"
        token = self._tokens.get(scope)
        known = token is not None and token.good_until > self._clock.monotonic()
        answer = await self._send(method, url, headers, token.header if known and token else "")
        if answer.status == 401:
            self._tokens.pop(scope, None)
            authorization = await self._authorize(answer, scope)
            answer = await self._send(method, url, headers, authorization)
        if answer.status in (401, 403):
            raise self._no_entry(answer, path)
        return answer

    async def _settle(self) -> None:
        """Find out, where both are allowed and nothing is said, whether the registry speaks https or http."""
        if self._plain:
            # Several may find out at the same time, and come to the same end.
            secure, plain = self._base, self._plain[0]
            try:
                await self._outgoing.fetch("GET", f"{secure}/v2/", verify=False, limit=_MANIFEST_LIMIT)
            except Unreachable:
                await self._outgoing.fetch("GET", f"{plain}/v2/", limit=_MANIFEST_LIMIT)
                self._base = plain
            self._plain = []

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], authorization: str
    ) -> HttpResponse:
        """One request. Redirects are followed, but the credentials go to the registry's own origin only."""
        origin = _origin(url)
        for _ in range(_REDIRECTS + 1):
            carried = dict(headers)
            if authorization and _origin(url) == origin:
                carried["Authorization"] = authorization
            answer = await self._outgoing.fetch(
                method, url, headers=carried, verify=not self._insecure, limit=_MANIFEST_LIMIT
            )
            if answer.status not in (301, 302, 303, 307, 308):
                return answer
            url = self._redirected(url, answer.header("Location"))
        raise ExternalFailure(f"{self._base}: more than {_REDIRECTS} redirects in a row")

    def _redirected(self, url: str, location: str) -> str:
        target = urljoin(url, location)
        if not location or urlsplit(target).scheme not in self._schemes:
            raise Refused(f"{self._base} redirects to an address that is not https")
        return target

    @property
    def _schemes(self) -> tuple[str, ...]:
        return ("https", "http") if self._insecure else ("https",)

    async def _authorize(self, answer: HttpResponse, scope: str) -> str:
        """What the registry asks for in its challenge: a token from where it says, or a name and a password."""
        kind, parameters = _challenge(answer.header("WWW-Authenticate"))
        if kind == "bearer":
            token = await self._fetch_token(parameters, scope)
            self._tokens[scope] = token
            return token.header
        if kind == "basic":
            if self._credentials is None:
                raise self._no_entry(answer, "")
            self._tokens[scope] = _Token(self._credentials.basic, float("inf"))
            return self._credentials.basic
        raise AuthFailed(f"{self._base} asks for a login of an unknown kind", reason="UnknownChallenge")

    async def _fetch_token(self, parameters: Mapping[str, str], scope: str) -> _Token:
        realm = parameters.get("realm", "")
        if urlsplit(realm).scheme not in self._schemes or urlsplit(realm).username is not None:
            raise Refused(
                f"{self._base} sends us for a token to an address that is not https", reason="RealmRefused"
            )
        # The registry's own words first: it may want more than one would think.
        asked = {"service": parameters.get("service", ""), "scope": parameters.get("scope", "") or scope}
        asked = {key: value for key, value in asked.items() if value}
        credentials = self._credentials
        if credentials is not None and credentials.identity_token:
            form = {
                **asked,
                "grant_type": "refresh_token",
                "client_id": "kapsa",
                "refresh_token": credentials.identity_token,
            }
            answer = await self._outgoing.fetch(
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
            answer = await self._outgoing.fetch(
                "GET",
                f"{realm}{joined}{urlencode(asked)}" if asked else realm,
                headers=headers,
                verify=not self._insecure,
                limit=_TOKEN_LIMIT,
            )
        return self._token(answer)

    def _token(self, answer: HttpResponse) -> _Token:
        if answer.status in (400, 401, 403):
            raise self._no_entry(answer, "")
        if answer.status != 200:
            raise self._unexpected(answer, "its token service")
        try:
            given = msgspec.json.decode(answer.body, type=_TokenAnswer)
        except msgspec.DecodeError:
            raise ExternalFailure(f"{self._base}: the answer of its token service is not a token") from None
        text = given.token or given.access_token
        if not text or not text.isascii() or not text.isprintable():
            raise ExternalFailure(f"{self._base}: the answer of its token service is not a token")
        lifetime = min(max(given.expires_in, 60.0), 3600.0)
        return _Token(f"Bearer {text}", self._clock.monotonic() + lifetime - _MARGIN)

    def _no_entry(self, answer: HttpResponse, path: str) -> ExternalError:
        who = (
            "the credentials are not accepted" if self._credentials is not None else "it asks for credentials"
        )
        hint = (
            "Check the Secret that the Registry names, and what it may do"
            if self._credentials is not None
            else "Name a Secret in the Registry's auth.secretRef"
        )
        return AuthFailed(f"{self._base}{path}: {who} ({answer.status}){self._said(answer)}", hint=hint)

    def _unexpected(self, answer: HttpResponse, path: str) -> ExternalError:
        what = f"{self._base}, {path}: it answered {answer.status}{self._said(answer)}"
        if answer.status == 429 or answer.status >= 500:
            return Unreachable(what, retry_after=_seconds(answer.header("Retry-After")))
        return ExternalFailure(what)

    def _said(self, answer: HttpResponse) -> str:
        secrets = self._credentials.secrets if self._credentials is not None else ()
        text = redact(printable(answer.body[:2000].decode("utf-8", "replace")), secrets)
        return f": {' '.join(text.split())[:200]}" if text.strip() else ""


def _bases(endpoint: str, insecure: bool) -> list[str]:
    """The URLs that paths may be appended to, best first. Plain http only where somebody asked for it."""
    scheme = endpoint.rpartition("://")[0]
    # The path of an endpoint is part of image names, not of the API's address.
    host = split_endpoint(endpoint)[0]
    if (
        scheme not in ("", "https", "http")
        or not host
        or not host.isprintable()
        or re.search(r"[@\s?#]", host)
    ):
        raise Refused(f"{endpoint[:120]!r} is not the address of a registry")
    if scheme == "http" and not insecure:
        raise Refused(
            f"{endpoint} is plain http, over which anybody could read the credentials",
            hint="Use https, or set spec.insecure of the Registry",
        )
    if host == DOCKER_HUB:
        host = _HUB_HOST
    if scheme:
        return [f"{scheme}://{host}"]
    return [f"https://{host}", f"http://{host}"] if insecure else [f"https://{host}"]


def _challenge(header: str) -> tuple[str, dict[str, str]]:
    kind, _, rest = header.strip().partition(" ")
    found = {name.lower(): quoted or plain for name, quoted, plain in _CHALLENGE.findall(rest[:8192])}
    return kind.lower(), found


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()


def _seconds(text: str) -> float | None:
    return min(float(text), 3600.0) if text.isdigit() else None
