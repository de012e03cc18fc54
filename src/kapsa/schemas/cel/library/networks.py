"""CEL functions for IP addresses, networks and URLs."""

from __future__ import annotations

import ipaddress
import re
from typing import Any
from urllib.parse import unquote

from kapsa.schemas.cel.library.signatures import Functions, function, method
from kapsa.schemas.cel.values import NO_OVERLOAD, CelEvaluationError, Opaque
from kapsa.schemas.go_format import quote

__all__ = ["FUNCTIONS", "parse_url"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UNSAFE_IN_PATH = re.compile(r"[^A-Za-z0-9\-_.~$&+,/:;=@!'()*\[\]%]")
_UNSAFE_IN_HOST = re.compile(r"[\s\"<>\\^`{|}]")


class Address(Opaque):
    """An IP address."""

    __slots__ = ("value",)
    type_name = "net.IP"

    def __init__(self, value: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
        self.value = value

    @property
    def size(self) -> int:
        return self.value.max_prefixlen // 8

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Address):
            raise CelEvaluationError(NO_OVERLOAD)
        return self.value == other.value

    __hash__ = None  # type: ignore[assignment]  # compared, never a key

    def __str__(self) -> str:
        return str(self.value)


class Network(Opaque):
    """A network in CIDR notation; the address may have bits outside of the prefix."""

    __slots__ = ("address", "value")
    type_name = "net.CIDR"

    def __init__(self, address: Address, value: ipaddress.IPv4Network | ipaddress.IPv6Network) -> None:
        self.address = address
        self.value = value

    @property
    def size(self) -> int:
        return -(-self.value.prefixlen // 8)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Network):
            raise CelEvaluationError(NO_OVERLOAD)
        return self.address == other.address and self.value.prefixlen == other.value.prefixlen

    __hash__ = None  # type: ignore[assignment]  # compared, never a key

    def __str__(self) -> str:
        return f"{self.address}/{self.value.prefixlen}"


class Url(Opaque):
    """A URL, taken apart as Go does."""

    __slots__ = ("host", "path", "query", "scheme", "text")
    type_name = "kubernetes.URL"

    def __init__(self, text: str, scheme: str, host: str, path: str, query: str) -> None:
        self.text = text
        self.scheme = scheme
        self.host = host
        self.path = path
        self.query = query

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Url):
            raise CelEvaluationError(NO_OVERLOAD)
        return self.text == other.text

    __hash__ = None  # type: ignore[assignment]  # compared, never a key


def _not_an_address(text: str) -> str:
    """Return Go's reason why a text is not an IP address."""
    mark = next((character for character in text if character in ".:%"), "")
    reason = "unable to parse IP"
    if mark == "%":
        reason = "missing IPv6 address"
    elif mark == ".":
        reason = _not_ipv4(text)
    elif mark == ":":
        reason = _not_ipv6(text)
    return f"ParseAddr({quote(text)}): {reason}"


def _not_ipv4(text: str) -> str:
    value, digits, fields = 0, 0, 0
    for at, character in enumerate(text):
        if character.isascii() and character.isdigit():
            if digits == 1 and value == 0:
                return "IPv4 field has octet with leading zero"
            value, digits = value * 10 + int(character), digits + 1
            if value > 255:
                return "IPv4 field has value >255"
        elif character == ".":
            if at == 0 or at == len(text) - 1 or text[at - 1] == ".":
                return f"IPv4 field must have at least one digit (at {quote(text[at:])})"
            if fields == 3:
                return "IPv4 address too long"
            value, digits, fields = 0, 0, fields + 1
        else:
            return f"unexpected character (at {quote(text[at:])})"
    return "IPv4 address too short"


def _not_ipv6(text: str) -> str:
    rest = text.partition("%")[0].removeprefix("::")
    groups = 0
    while groups < 8:
        match = re.match(r"[0-9A-Fa-f]*", rest)
        group = match[0] if match is not None else ""
        if len(group) > 4:
            return f"each group must have 4 or less digits (at {quote(rest)})"
        if not group:
            return f"each colon-separated field must have at least one digit (at {quote(rest)})"
        rest, before = rest[len(group) :], rest
        groups += 1
        if not rest:
            return "address string too short"
        if rest[0] != ":":
            return f"unexpected character, want colon (at {quote(rest)})"
        if len(rest) == 1:
            return f"colon must be followed by more characters (at {quote(rest)})"
        rest = rest[1:]
        if rest[0] == ":":
            if "::" in text[: len(text) - len(rest) - 1]:
                return f"multiple :: in address (at {quote(rest)})"
            rest = rest[1:]
        del before
    return f"trailing garbage after address (at {quote(rest)})"


def _parse_address(text: str) -> Any:
    if "%" in text and ":" in text.partition("%")[0]:
        raise CelEvaluationError(f"IP address {quote(text)} with zone value is not allowed")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        problem = _not_an_address(text)
        raise CelEvaluationError(
            f"IP Address {quote(text)} parse error during conversion from string: {problem}"
        ) from None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise CelEvaluationError(f"IPv4-mapped IPv6 address {quote(text)} is not allowed")
    return address


def _address(text: str) -> Address:
    return Address(_parse_address(text))


def _network(text: str) -> Network:
    head = "network address parse error during conversion from string: "
    base, slash, bits = text.rpartition("/")
    problem = ""
    if not slash:
        problem = "no '/'"
    else:
        try:
            address = ipaddress.ip_address(base)
        except ValueError:
            problem = _not_an_address(base)
        else:
            if "%" in base:
                problem = "IPv6 zones cannot be present in a prefix"
            elif not bits.isascii() or not bits.isdigit() or (len(bits) > 1 and bits[0] == "0"):
                problem = f"bad bits after slash: {quote(bits)}"
            elif int(bits) > address.max_prefixlen:
                problem = "prefix length out of range"
    if problem:
        raise CelEvaluationError(f"{head}{head}netip.ParsePrefix({quote(text)}): {problem}")
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise CelEvaluationError(f"{head}IPv4-mapped IPv6 address {quote(text)} is not allowed")
    return Network(Address(address), ipaddress.ip_network(text, strict=False))


def _is_address(text: str) -> bool:
    try:
        _parse_address(text)
    except CelEvaluationError:
        return False
    return True


def _is_network(text: str) -> bool:
    try:
        _network(text)
    except CelEvaluationError:
        return False
    return True


def _contains_address(network: Network, address: Address) -> bool:
    return address.value in network.value


def _contains_address_text(network: Network, text: str) -> bool:
    if not _is_address(text):
        raise CelEvaluationError(NO_OVERLOAD)
    return _contains_address(network, _address(text))


def _contains_network(outer: Network, inner: Network) -> bool:
    one, other = outer.value, inner.value
    return one.version == other.version and one.overlaps(other) and one.prefixlen <= other.prefixlen


def _is_global_unicast(address: Address) -> bool:
    value = address.value
    limited = value.version == 4 and str(value) == "255.255.255.255"
    special = value.is_unspecified or value.is_loopback or value.is_multicast or value.is_link_local
    return not (special or limited)


def _is_link_local_multicast(address: Address) -> bool:
    network = "224.0.0.0/24" if address.value.version == 4 else "ff02::/16"
    return address.value in ipaddress.ip_network(network)


def parse_url(text: str) -> Url:
    """Take a URL apart. Raises CelEvaluationError, in Go's words, if it is neither absolute nor a path."""
    rest = text
    scheme = ""
    if any(ord(character) < 0x20 or character == "\x7f" for character in text):
        _refuse(text, "net/url: invalid control character in URL")
    if not text:
        _refuse(text, "empty url")
    if text.startswith(":"):
        _refuse(text, "missing protocol scheme")
    if text == "*":
        return Url(text, "", "", "*", "")
    match = _SCHEME.match(text)
    if match is not None:
        scheme, rest = match[0][:-1].lower(), text[match.end() :]
    rest, _, query = rest.partition("?")
    query = query.partition("#")[0]
    if not rest.startswith("/"):
        if not scheme:
            _refuse(text, "invalid URI for request")
        return Url(text, scheme, "", "", query)
    host = ""
    if scheme and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        authority = authority.partition("#")[0] if "#" in authority else authority
        host = _host(text, scheme, authority)
    bad = _BAD_ESCAPE.search(rest)
    if bad is not None:
        _refuse(text, f"invalid URL escape {quote(rest[bad.start() : bad.start() + 3])}")
    return Url(text, scheme, host, rest.partition("#")[0], query)


def _host(text: str, scheme: str, authority: str) -> str:
    host = authority.rpartition("@")[2]
    port = ""
    if host.startswith("["):
        closing = host.rfind("]")
        if closing < 0:
            _refuse(text, "missing ']' in host")
        port = host[closing + 1 :]
    elif ":" in host:
        port = host[host.index(":") if scheme in ("http", "https") else host.rindex(":") :]
    if port and (port[0] != ":" or (port[1:] and not (port[1:].isascii() and port[1:].isdigit()))):
        _refuse(text, f"invalid port {quote(port)} after host")
    unsafe = _UNSAFE_IN_HOST.search(host)
    if unsafe is not None:
        _refuse(text, f"invalid character {quote(unsafe[0])} in host name")
    return unquote(host)


def _refuse(text: str, reason: str) -> None:
    raise CelEvaluationError(f"parse {quote(text)}: {reason}")


def _url(text: str) -> Url:
    try:
        return parse_url(text)
    except CelEvaluationError as error:
        raise CelEvaluationError(f"URL parse error during conversion from string: {error}") from None


def _is_url(text: str) -> bool:
    try:
        parse_url(text)
    except CelEvaluationError:
        return False
    return True


def _hostname(url: Url) -> str:
    if url.host.startswith("["):
        return url.host[1 : url.host.rfind("]")]
    return url.host.partition(":")[0] if ":" in url.host else url.host


def _port(url: Url) -> str:
    after = url.host[url.host.rfind("]") + 1 :]
    return after.rpartition(":")[2] if ":" in after else ""


def _escaped_path(url: Url) -> str:
    return _UNSAFE_IN_PATH.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), url.path)


def _query(url: Url) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for pair in url.query.split("&"):
        if not pair or ";" in pair or _BAD_ESCAPE.search(pair):
            continue
        key, _, value = pair.partition("=")
        values.setdefault(_decoded(key), []).append(_decoded(value))
    return values


def _decoded(text: str) -> str:
    return unquote(text.replace("+", " "))


_IP, _CIDR, _URL = "net.IP", "net.CIDR", "kubernetes.URL"

FUNCTIONS: Functions = {
    "ip": [
        function("string_to_ip", "string", _IP, _address),
        method("cidr_ip", _CIDR, _IP, lambda network: network.address),
    ],
    "isIP": [function("is_ip", "string", "bool", _is_address)],
    "ip.isCanonical": [
        function("ip_is_canonical", "string", "bool", lambda text: str(_parse_address(text)) == text)
    ],
    "family": [method("ip_family", _IP, "int", lambda address: address.value.version)],
    "isUnspecified": [method("ip_is_unspecified", _IP, "bool", lambda address: address.value.is_unspecified)],
    "isLoopback": [method("ip_is_loopback", _IP, "bool", lambda address: address.value.is_loopback)],
    "isLinkLocalUnicast": [
        method("ip_is_link_local_unicast", _IP, "bool", lambda address: address.value.is_link_local)
    ],
    "isLinkLocalMulticast": [method("ip_is_link_local_multicast", _IP, "bool", _is_link_local_multicast)],
    "isGlobalUnicast": [method("ip_is_global_unicast", _IP, "bool", _is_global_unicast)],
    "cidr": [function("string_to_cidr", "string", _CIDR, _network)],
    "isCIDR": [function("is_cidr", "string", "bool", _is_network)],
    "containsIP": [
        method("cidr_contains_ip_string", f"{_CIDR}; string", "bool", _contains_address_text),
        method("cidr_contains_ip_ip", f"{_CIDR}; {_IP}", "bool", _contains_address),
    ],
    "containsCIDR": [
        method(
            "cidr_contains_cidr_string",
            f"{_CIDR}; string",
            "bool",
            lambda network, text: _contains_network(network, _network(text)),
        ),
        method("cidr_contains_cidr", f"{_CIDR}; {_CIDR}", "bool", _contains_network),
    ],
    "masked": [
        method(
            "cidr_masked",
            _CIDR,
            _CIDR,
            lambda network: Network(Address(network.value.network_address), network.value),
        )
    ],
    "prefixLength": [method("cidr_prefix_length", _CIDR, "int", lambda network: network.value.prefixlen)],
    "string": [
        function("ip_to_string", _IP, "string", str),
        function("cidr_to_string", _CIDR, "string", str),
    ],
    "url": [function("string_to_url", "string", _URL, _url)],
    "isURL": [function("is_url_string", "string", "bool", _is_url)],
    "getScheme": [method("url_get_scheme", _URL, "string", lambda url: url.scheme)],
    "getHost": [method("url_get_host", _URL, "string", lambda url: url.host)],
    "getHostname": [method("url_get_hostname", _URL, "string", _hostname)],
    "getPort": [method("url_get_port", _URL, "string", _port)],
    "getEscapedPath": [method("url_get_escaped_path", _URL, "string", _escaped_path)],
    "getQuery": [method("url_get_query", _URL, "map(string, list(string))", _query)],
}
