"""The proxy that the environment sets for a request: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.request import getproxies, proxy_bypass

from yarl import URL

from kapsa.adapters.errors import Refused
from kapsa.adapters.http.address_guard import is_ip

__all__ = ["environment_proxy"]

_VARIABLES = {"http": "HTTP_PROXY or ALL_PROXY", "https": "HTTPS_PROXY or ALL_PROXY"}


def environment_proxy(url: URL) -> URL | None:
    """Return the proxy for a URL. A token for this machine goes to no other.

    A proxy without a scheme speaks HTTP. One of another protocol, such as SOCKS, is for other programs and is skipped.
    Raises Refused, without the password, if the variable is not an address.
    """
    host = url.host or ""
    if _is_loopback(host) or proxy_bypass(host):
        return None
    proxies = getproxies()
    given = (proxies.get(url.scheme) or proxies.get("all") or "").strip()
    if not given:
        return None
    text = given if "://" in given else f"http://{given}"
    if not text.lower().startswith(("http://", "https://")):
        return None
    return _parse(text, _VARIABLES.get(url.scheme, "ALL_PROXY"))


def _parse(text: str, variable: str) -> URL:
    try:
        proxy = URL(text)
    except ValueError:
        proxy = URL()
    # With a '/', '?' or '#' in the password the host would be the name of the user.
    if proxy.host and ("@" not in text or proxy.user is not None or proxy.password is not None):
        return proxy
    server = re.split("[/?#]", text.partition("://")[2].rpartition("@")[2])[0]
    raise Refused(
        f"the proxy {server!r} of {variable} is not an address: use http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT "
        "with special characters percent-encoded"
    ) from None


def _is_loopback(host: str) -> bool:
    return ip_address(host).is_loopback if is_ip(host) else host.rstrip(".").lower() == "localhost"
