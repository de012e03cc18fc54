"""The rules of routing: only allocated hosts, and no configuration of the shared ingress controller."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kapsa.environments.hosts.traefik_annotations import is_of_traefik, traefik_refusal

__all__ = [
    "ISSUER_ANNOTATIONS",
    "annotation_refusal",
    "issuer_annotation",
    "path_refusal",
    "routing_refusals",
]

ISSUER_ANNOTATIONS = ("cert-manager.io/cluster-issuer", "cert-manager.io/issuer")
"""The annotations that make cert-manager maintain a Certificate for an Ingress."""
_OF_CERT_MANAGER = re.compile(r"(.+\.)?cert-manager\.io/.*|kubernetes\.io/tls-acme", re.I | re.S)
_CONFIGURES_ALL = re.compile(
    r"snippet|server-alias|host-aliases|hostname-extension|^redirect-from|^tcp-service-|modsecurity|lua-|^config-|auth-url"
    r"|auth-signin|auth-tls-match-cn|custom-headers|^mirror-|^actions\."
)
"""Annotations that inject configuration, claim another host or a port, or send requests elsewhere."""
_BREAKS_OUT = re.compile(r"[;{}\r\n]")
"""Characters that would let a value break out of its line in a controller's configuration."""
_PATH = re.compile(r"(?:[A-Za-z0-9\-._~/!$&()*+,=:@]|%[0-9A-Fa-f]{2})*")
"""The characters of a path in a URL (RFC 3986), without quotes and semicolons."""
_PATTERN = re.compile(r"(?:[A-Za-z0-9\-._~/!$&()*+,=:@|?^\[\]]|%[0-9A-Fa-f]{2})*")
"""Those characters, and those of a regular expression that mean nothing in a configuration."""
_OF_A_CONTROLLER = re.compile(r"(?:ingress|haproxy|konghq|nginx|contour|projectcontour)", re.I)
_WITH_OWN_ROUTES = re.compile(
    r"(.+\.)?(zalando\.org|getambassador\.io|apisix\.apache\.org|higress\.io)", re.I
)
"""Controllers whose annotations are routes of their own, to any host or from any namespace."""
_REFERENCES = ("-secret", "-configmap")
_OF_A_CONTROLLER_REFERENCES = (*_REFERENCES, "-ca", "-crt", "auth-proxy-set-headers")
"""The ends of annotations that name an object, as namespace/name if it is in another one."""
_NAMES_HOSTS = (
    "external-dns.alpha.kubernetes.io/hostname",
    "external-dns.alpha.kubernetes.io/internal-hostname",
)
_ELSEWHERE = re.compile(r"external-dns\.alpha\.kubernetes\.io/(target|endpoints-type|controller)")


def issuer_annotation(issuer: tuple[str, str] | None) -> dict[str, str]:
    """Return the annotation of an Ingress whose certificate comes from this issuer, by its kind and name."""
    if issuer is None:
        return {}
    kind, name = issuer
    of_cluster, of_namespace = ISSUER_ANNOTATIONS
    return {of_cluster if kind == "ClusterIssuer" else of_namespace: name}


def annotation_refusal(
    key: str,
    value: str,
    *,
    hosts: Collection[str] = (),
    namespace: str = "",
    issuer: tuple[str, str] | None = None,
) -> str:
    """Return the reason to refuse an annotation of a routing object; empty if it is allowed.

    `issuer` is the one that the DomainPool grants, by its kind and name.
    """
    if _OF_CERT_MANAGER.fullmatch(key):
        return _certificate_refusal(key, value, issuer)
    if is_of_traefik(key):
        return traefik_refusal(key, value)
    prefix, _, name = key.rpartition("/")
    name, of_controller = name.lower(), _OF_A_CONTROLLER.search(prefix)
    if _WITH_OWN_ROUTES.fullmatch(prefix) or (of_controller and _CONFIGURES_ALL.search(name)):
        return f"annotation {key} would configure the ingress controller itself"
    if of_controller and _BREAKS_OUT.search(value):
        return f"annotation {key} holds a semicolon, a brace or a line break"
    if key in _NAMES_HOSTS:
        foreign = [host.strip() for host in value.split(",") if host.strip() not in hosts]
        return f"annotation {key} names {foreign[0]!r}, a host that is not allocated to it" if foreign else ""
    if _ELSEWHERE.match(key):
        return f"annotation {key} would send requests elsewhere"
    references = _OF_A_CONTROLLER_REFERENCES if of_controller else _REFERENCES
    if name.endswith(references) and "/" in value and value.partition("/")[0] != namespace:
        return f"annotation {key} names an object in another namespace"
    return ""


def _certificate_refusal(key: str, value: str, issuer: tuple[str, str] | None) -> str:
    granted = issuer_annotation(issuer)
    if granted.get(key) == value:
        return ""
    allowed = "".join(f"; the DomainPool grants only {name}: {text}" for name, text in granted.items())
    return f"annotation {key} is not allowed: it could issue certificates in the name of others{allowed}"


def path_refusal(path: str, *, pattern: bool = False) -> str:
    """Return the reason to refuse a path of a route; empty if it is allowed.

    With `pattern` it may be a regular expression, as in an Ingress of pathType ImplementationSpecific.
    """
    if (_PATTERN if pattern else _PATH).fullmatch(path):
        return ""
    return (
        f"path {path[:80]!r} may contain only letters, digits and -._~/!$&()*+,=:@%: a controller could read other "
        "characters, such as quotes, blanks and braces, as configuration"
    )


def routing_refusals(
    manifest: Mapping[str, Any],
    *,
    hosts: Collection[str],
    namespace: str,
    issuer: tuple[str, str] | None = None,
) -> Iterator[str]:
    """Yield the reasons to refuse a routing object, for the hosts and the issuer that its DomainPool grants."""
    kind = manifest.get("kind")
    spec = manifest.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    if kind == "Ingress":
        yield from _ingress(spec, hosts)
    elif kind == "Service":
        yield from _service(spec)
    if kind in ("Ingress", "Service"):
        annotations = manifest["metadata"].get("annotations")
        for key, value in annotations.items() if isinstance(annotations, dict) else ():
            refusal = annotation_refusal(
                str(key), str(value), hosts=hosts, namespace=namespace, issuer=issuer
            )
            if refusal:
                yield refusal


def _ingress(spec: Mapping[str, Any], hosts: Collection[str]) -> Iterator[str]:
    if spec.get("defaultBackend") or spec.get("backend"):
        yield "spec.defaultBackend would take the requests of every host"
    rules = _dicts(spec.get("rules"))
    if not rules and not spec.get("defaultBackend"):
        yield "spec.rules is empty"
    for rule in rules:
        yield from _foreign(rule.get("host"), hosts)
        http = rule.get("http")
        for entry in _dicts(http.get("paths")) if isinstance(http, dict) else ():
            pattern = entry.get("pathType") == "ImplementationSpecific"
            if refusal := path_refusal(str(entry.get("path") or ""), pattern=pattern):
                yield refusal
    for entry in _dicts(spec.get("tls")):
        listed = entry.get("hosts")
        for host in listed if isinstance(listed, list) else ():
            yield from _foreign(host, hosts)


def _service(spec: Mapping[str, Any]) -> Iterator[str]:
    if (kind := spec.get("type") or "ClusterIP") != "ClusterIP":
        yield f"spec.type is {kind}; only ClusterIP is allowed"
    for field in ("externalIPs", "loadBalancerIP", "externalName"):
        if spec.get(field):
            yield f"spec.{field} is set"


def _foreign(host: Any, hosts: Collection[str]) -> Iterator[str]:
    if not host:
        yield "a rule without a host would take the requests of every host"
    elif host not in hosts:
        yield f"host {str(host)[:253]!r} is not allocated to it"


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
