"""Validation of the way to a webhook or an extension server: a service or a URL."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.schemas.field_errors import FieldError, invalid, required

__all__ = ["service_port", "validate_client"]

Object = dict[str, Any]

_FORM = "; desired format: https://host[/path]"


def validate_client(client: Object, path: str) -> list[FieldError]:
    """Return the errors in the clientConfig of a webhook."""
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        return [required(path, "exactly one of url or service is required")]
    return _url(url, f"{path}.url") if service is None else _service(service, f"{path}.service")


def _url(url: Any, path: str) -> list[FieldError]:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        return [required(path, f"url must be a valid URL: {error}{_FORM}")]
    user, at, _ = parts.netloc.rpartition("@")
    wrong = (
        (parts.scheme != "https", parts.scheme, f"'https' is the only allowed URL scheme{_FORM}"),
        (not parts.netloc, parts.netloc, f"host must be specified{_FORM}"),
        (bool(at), user, "user information is not permitted in the URL"),
        (bool(parts.fragment), parts.fragment, "fragments are not permitted in the URL"),
        (bool(parts.query), parts.query, "query parameters are not permitted in the URL"),
    )
    return [invalid(path, value, detail) for applies, value, detail in wrong if applies]


def _service(service: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    # The real server confuses the two.
    for field, reported in (("namespace", "name"), ("name", "namespace")):
        if not service.get(field):
            errors.append(required(f"{path}.{reported}"))
    errors += service_port(service.get("port"), f"{path}.port")
    return errors + _path(service.get("path") or "/", f"{path}.path")


def service_port(port: Any, path: str) -> list[FieldError]:
    """Return the error of a port out of range."""
    wrong = rules.port_number(port, path)
    return [invalid(path, error.value, f"port is not valid: {error.detail}") for error in wrong]


def _path(url: str, path: str) -> list[FieldError]:
    if url == "/":
        return []
    if url == "//":
        return [invalid(path, url, "segment[0] may not be empty")]
    errors = [] if url.startswith("/") else [invalid(path, url, "must start with a '/'")]
    for index, segment in enumerate(url[1:].removesuffix("/").split("/")):
        if not segment:
            errors.append(invalid(path, url, f"segment[{index}] may not be empty"))
            continue
        errors += [
            invalid(path, url, f"segment[{index}]: {problem}") for problem in names.dns1123_subdomain(segment)
        ]
    return errors
