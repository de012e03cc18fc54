"""CEL functions for IP addresses, networks and URLs."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

__all__ = ["FUNCTIONS"]

Carried = dict[str, Any]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_IP, _CIDR, _URL = "net.IP", "net.CIDR", "kubernetes.URL"
_MAP = "map<string, dyn>"


def _parse_address(text: str) -> Address:
    if "%" in text or (":" in text and "." in text and text.lower().startswith("::ffff:")):
        raise ValueError(
            f"IP Address {text!r} parse error during conversion from string: not a canonical address"
        )
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        problem = "unable to parse IP" if text else "unable to parse IP: empty string"
        raise ValueError(
            f'IP Address "{text}" parse error during conversion from string: ParseAddr("{text}"): {problem}'
        ) from None


def _parse_network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f'network address parse error during conversion from string: "{text}"') from None


def _holds(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check


def _address(carried: Any) -> Address:
    if isinstance(carried, str):
        return _parse_address(carried)
    if _IP not in carried:
        raise ValueError("no such overload")
    return ipaddress.ip_address(carried[_IP])


def _network(carried: Any) -> Network:
    if isinstance(carried, str):
        return _parse_network(carried)
    if _CIDR not in carried:
        raise ValueError("no such overload")
    return ipaddress.ip_network(carried[_CIDR], strict=False)


def _contains_network(outer: Carried, inner: Any) -> bool:
    one, other = _network(outer), _network(inner)
    return one.version == other.version and other.subnet_of(one)  # type: ignore[arg-type]  # same version, see left


def _is_global_unicast(carried: Carried) -> bool:
    address = _address(carried)
    limited = isinstance(address, ipaddress.IPv4Address) and str(address) == "255.255.255.255"
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not (special or limited)


def _is_link_local_multicast(carried: Carried) -> bool:
    address = _address(carried)
    network = "224.0.0.0/24" if address.version == 4 else "ff02::/16"
    return address in ipaddress.ip_network(network)


def _parse_url(text: str) -> SplitResult:
    parts = urlsplit(text)
    if not text or not (parts.scheme or text.startswith("/")):
        raise ValueError(
            f'URL parse error during conversion from string: parse "{text}": invalid URI for request'
        )
    return parts


def _url(carried: Carried) -> SplitResult:
    if _URL not in carried:
        raise ValueError("no such overload")
    return urlsplit(carried[_URL])


def _host(carried: Carried) -> str:
    return _url(carried).netloc.rpartition("@")[2]


def _port(carried: Carried) -> str:
    port = _url(carried).port
    return "" if port is None else str(port)


def _query(carried: Carried) -> dict[str, list[str]]:
    return parse_qs(_url(carried).query, keep_blank_values=True)


def _new_url(text: str) -> Carried:
    _parse_url(text)
    return {_URL: text}


def _flag(name: str) -> Callable[[Carried], bool]:
    return lambda carried: bool(getattr(_address(carried), name))


def _new_network(text: str) -> Carried:
    _parse_network(text)
    return {_CIDR: text}


def _masked(carried: Carried) -> Carried:
    return {_CIDR: str(_network(carried))}


FUNCTIONS: dict[str, list[tuple[str, str, str, Callable[..., Any]]]] = {
    "ip": [
        ("", "string", _MAP, lambda text: {_IP: str(_parse_address(text))}),
        (".", _MAP, _MAP, lambda carried: {_IP: carried[_CIDR].partition("/")[0]}),
    ],
    "isIP": [("", "string", "bool", _holds(_parse_address))],
    "ip.isCanonical": [("", "string", "bool", lambda text: str(_parse_address(text)) == text)],
    "family": [(".", _MAP, "int", lambda carried: _address(carried).version)],
    "isUnspecified": [(".", _MAP, "bool", _flag("is_unspecified"))],
    "isLoopback": [(".", _MAP, "bool", _flag("is_loopback"))],
    "isLinkLocalUnicast": [(".", _MAP, "bool", _flag("is_link_local"))],
    "isLinkLocalMulticast": [(".", _MAP, "bool", _is_link_local_multicast)],
    "isGlobalUnicast": [(".", _MAP, "bool", _is_global_unicast)],
    "cidr": [("", "string", _MAP, _new_network)],
    "isCIDR": [("", "string", "bool", _holds(_parse_network))],
    "containsIP": [
        (".", f"{_MAP}; {kind}", "bool", lambda net, address: _address(address) in _network(net))
        for kind in (_MAP, "string")
    ],
    "containsCIDR": [(".", f"{_MAP}; {kind}", "bool", _contains_network) for kind in (_MAP, "string")],
    "masked": [(".", _MAP, _MAP, _masked)],
    "prefixLength": [(".", _MAP, "int", lambda carried: _network(carried).prefixlen)],
    "url": [("", "string", _MAP, _new_url)],
    "isURL": [("", "string", "bool", _holds(_parse_url))],
    "getScheme": [(".", _MAP, "string", lambda carried: _url(carried).scheme)],
    "getHost": [(".", _MAP, "string", _host)],
    "getHostname": [(".", _MAP, "string", lambda carried: _url(carried).hostname or "")],
    "getPort": [(".", _MAP, "string", _port)],
    "getEscapedPath": [(".", _MAP, "string", lambda carried: _url(carried).path)],
    "getQuery": [(".", _MAP, "map<string, list<string>>", _query)],
}
