"""A probe of a host: one request through the ingress, as a browser would send it."""

from __future__ import annotations

from urllib.parse import urlsplit

from kapsa.adapters.http.client import HttpClient

__all__ = ["HttpProber"]


class HttpProber:
    """Probes of hosts over HTTP. The certificate is not verified here: the condition TLSReady reports it."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    async def probe(self, url: str, *, address: str = "") -> int:
        """Return the status code of the response.

        `address` overrides the address that the host name resolves to.

        The request to `address` uses TLS for an https URL, with the host name of the URL, unless its port is
        80.

        Raises `ExternalError` when there is no response.
        """
        headers = {}
        if address:
            parts = urlsplit(url)
            headers["Host"] = parts.netloc
            scheme = "http" if address.endswith(":80") else parts.scheme
            url = f"{scheme}://{address}{parts.path or '/'}"
        response = await self._http.fetch("GET", url, headers=headers, verify=False, limit=1024 * 1024)
        return response.status
