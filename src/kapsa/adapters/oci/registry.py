"""A client of the OCI distribution API: manifests, blobs and tags, the digest of an image, and its deletion.

A 404 means that the image does not exist. A 401 or 403 means that access is denied, and any other error
leaves it open. The difference decides whether an image is built.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit

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
from kapsa.adapters.http.redirects import fetch_redirected
from kapsa.adapters.oci.credentials import RegistryCredentials
from kapsa.adapters.oci.image_reference import DOCKER_HUB, ImageReference, is_digest, split_endpoint
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
_CHALLENGE = re.compile(r'([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_NEXT_PAGE = re.compile(r'<([^<>]{1,1000})>\s*;\s*rel="?next"?')
_TAGS_PER_PAGE, _MOST_TAGS = 1000, 10_000
_ERROR_CODES = frozenset(
    [
        "BLOB_UNKNOWN",
        "BLOB_UPLOAD_INVALID",
        "BLOB_UPLOAD_UNKNOWN",
        "DENIED",
        "DIGEST_INVALID",
        "MANIFEST_BLOB_UNKNOWN",
        "MANIFEST_INVALID",
        "MANIFEST_UNKNOWN",
        "MANIFEST_UNVERIFIED",
        "NAME_INVALID",
        "NAME_UNKNOWN",
        "SIZE_INVALID",
        "TAG_INVALID",
        "TOOMANYREQUESTS",
        "UNAUTHORIZED",
        "UNAVAILABLE",
        "UNKNOWN",
        "UNSUPPORTED",
    ]
)
"""Codes of the distribution specification. Nothing else of an error is shown: its text is the registry's own, and
an address that is not a registry at all must not be read through our errors."""
_MARGIN = 10.0
"""Seconds before its expiry from which a token is no longer used."""


class _TokenResponse(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""
    expires_in: float = 60.0


class _RegistryError(msgspec.Struct, frozen=True):
    code: str = ""


class _RegistryErrors(msgspec.Struct, frozen=True):
    errors: list[_RegistryError] = []


class _TagList(msgspec.Struct, frozen=True):
    tags: list[str] | None = None


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
                hint="Check the address of the registry",
                reason="NoRegistry",
            )
        if response.status != 200:
            raise self._unexpected(response, "/v2/")

    async def digest(self, image: ImageReference) -> str | None:
        """Return the digest of an image by its tag or digest, or None if the registry does not have it.

        Raises `ExternalError` when there is no clear answer. It is `retryable` if a later try can succeed.
        """
        path = f"/v2/{image.path}/manifests/{image.digest or image.tag or 'latest'}"
        scope = _pull(image)
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

    async def manifest(self, image: ImageReference, *, media_types: str = _MANIFEST_TYPES) -> bytes:
        """Return the manifest of an image. With a digest, the content is verified.

        Raises `ExternalNotFound` when the registry does not have it, and `ExternalError` without a clear answer.
        """
        path = f"/v2/{image.path}/manifests/{image.digest or image.tag or 'latest'}"
        response = await self._request("GET", path, scope=_pull(image), accept=media_types)
        self._require(response, path, f"{image}")
        return self._verified(response.body, image.digest, f"the manifest of {image}")

    async def blob(self, image: ImageReference, digest: str, *, limit: int) -> bytes:
        """Return a blob of the repository that an image is in, verified against its digest.

        Raises `ExternalNotFound` when the registry does not have it, `LimitExceeded` when it is too large, and
        `Refused` when the content does not have this digest.
        """
        if not is_digest(digest):
            raise Refused(f"{self._base}: {digest[:80]!r} is not a valid digest")
        path = f"/v2/{image.path}/blobs/{digest}"
        response = await self._request("GET", path, scope=_pull(image), limit=limit)
        self._require(response, path, f"{image.repository}@{digest}")
        return self._verified(response.body, digest, f"{image.repository}@{digest}")

    async def tags(self, image: ImageReference) -> list[str]:
        """Return the tags of the repository that an image is in, at most 10,000.

        Raises `ExternalNotFound` when the registry does not have the repository.
        """
        tags: list[str] = []
        path = f"/v2/{image.path}/tags/list?n={_TAGS_PER_PAGE}"
        while path and len(tags) < _MOST_TAGS:
            response = await self._request("GET", path, scope=_pull(image))
            self._require(response, path, image.repository)
            try:
                tags += msgspec.json.decode(response.body, type=_TagList).tags or ()
            except msgspec.DecodeError:
                raise ExternalFailure(f"{self._base}, {path}: not a list of tags") from None
            path = self._next_page(response.header("Link"), image)
        return tags[:_MOST_TAGS]

    def _next_page(self, link: str, image: ImageReference) -> str:
        """Return the path of the next page. A link to another host or repository is not followed."""
        match = _NEXT_PAGE.search(link)
        target = match[1].removeprefix(self._base) if match else ""
        return target if target.startswith(f"/v2/{image.path}/tags/list?") else ""

    def _require(self, response: HttpResponse, path: str, what: str) -> None:
        if response.status == 404:
            raise ExternalNotFound(f"{self._base} does not have {what}")
        if response.status != 200:
            raise self._unexpected(response, path)

    def _verified(self, content: bytes, digest: str, what: str) -> bytes:
        algorithm, _, expected = digest.partition(":")
        if digest and hashlib.new(algorithm, content).hexdigest() != expected:
            raise Refused(
                f"{self._base}: the content of {what} does not have its digest", reason="DigestMismatch"
            )
        return content

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
                f"{self._base} does not delete images ({response.status}){_codes(response)}",
                reason="DeletionUnsupported",
                hint="Enable deletion in the registry, or keep its images",
            )
        if response.status not in (200, 202, 204):
            raise self._unexpected(response, path)
        return True

    async def _request(
        self, method: str, path: str, *, scope: str, accept: str = "", limit: int = _MANIFEST_LIMIT
    ) -> HttpResponse:
        await self._choose_protocol()
        headers = {"Accept": accept} if accept else {}
        url = f"{self._base}{path}"
        token = self._tokens.get(scope)
        valid = token is not None and token.expires > self._clock.monotonic()
        response = await self._send(method, url, headers, token.header if valid and token else "", limit)
        if response.status == 401:
            self._tokens.pop(scope, None)
            authorization = await self._authorize(response, scope)
            response = await self._send(method, url, headers, authorization, limit)
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
        self, method: str, url: str, headers: Mapping[str, str], authorization: str, limit: int
    ) -> HttpResponse:
        return await fetch_redirected(
            self._http,
            method,
            url,
            headers=headers,
            authorization=authorization,
            plain=self._insecure,
            verify=not self._insecure,
            limit=limit,
        )

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
            "Check the user name and password, and the permissions of that user"
            if self._credentials is not None
            else "Provide a user name and password for the registry"
        )
        return AuthFailed(f"{self._base}{path}: {problem} ({response.status}){_codes(response)}", hint=hint)

    def _unexpected(self, response: HttpResponse, path: str) -> ExternalError:
        message = f"{self._base}, {path}: unexpected status {response.status}{_codes(response)}"
        if response.status == 429 or response.status >= 500:
            return Unreachable(message, retry_after=_seconds(response.header("Retry-After")))
        return ExternalFailure(message)


def _codes(response: HttpResponse) -> str:
    """Return the codes in an error of a registry, for the end of a message; empty if it has none."""
    try:
        errors = msgspec.json.decode(response.body, type=_RegistryErrors).errors
    except msgspec.DecodeError:
        return ""
    codes = dict.fromkeys(each.code for each in errors if each.code in _ERROR_CODES)
    return f": {', '.join(codes)}" if codes else ""


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
            hint="Use https, or allow insecure access to this registry",
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


def _pull(image: ImageReference) -> str:
    return f"repository:{image.path}:pull"


def _seconds(text: str) -> float | None:
    return min(float(text), 3600.0) if text.isdigit() else None
