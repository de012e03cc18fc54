"""Probing: is a host answered? One request, through the ingress, as a browser would send it."""

from __future__ import annotations

from urllib.parse import urlsplit

from kapsa.adapters.http.client import HttpClient

__all__ = ["HttpProber"]


class HttpProber:
    """Asks hosts for a page. Whether somebody vouches for the certificate is told by TLSReady, not here."""

    def __init__(self, outgoing: HttpClient) -> None:
        self._outgoing = outgoing

    async def probe(self, url: str, *, address: str = "") -> int:
        """The status code of the answer; `address` is where to ask, if not where the host's name leads.

        There, too, an https host is asked over TLS and by its name, unless that is the port of plain http.

        :raises ExternalError: there is none.
        """
        headers = {}
        if address:
            parts = urlsplit(url)
            headers["Host"] = parts.netloc
            scheme = "http" if address.endswith(":80") else parts.scheme
            url = f"{scheme}://{address}{parts.path or '/'}"
        answer = await self._outgoing.fetch("GET", url, headers=headers, verify=False, limit=1024 * 1024)
        return answer.status
