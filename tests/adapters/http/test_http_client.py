"""Requests to servers that are not trusted."""

from __future__ import annotations

import ssl

import pytest

from kapsa.adapters.http.client import GuardedHttpClient
from kapsa.adapters.testing.registry_server import RegistryServer


async def test_an_unverified_request_loads_no_authorities(
    registry_server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading them takes longer than the rest of a request."""
    http = GuardedHttpClient(address_guard=None)
    read = []
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: read.append(1))
    monkeypatch.setattr(ssl.SSLContext, "set_default_verify_paths", lambda *_: read.append(1))
    try:
        for _ in range(2):
            response = await http.fetch("GET", f"http://{registry_server.endpoint}/v2/", verify=False)
            assert response.status == 200
    finally:
        await http.close()
    assert read == []
