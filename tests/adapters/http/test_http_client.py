"""Requests to servers that nobody vouches for."""

from __future__ import annotations

import ssl

import pytest

from kapsa.adapters.http.client import GuardedHttpClient
from kapsa.adapters.testing import RegistryServer


async def test_a_request_that_checks_no_certificate_reads_no_authorities(
    registry_server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading them takes longer than everything else about a request."""
    outgoing = GuardedHttpClient(address_guard=None)
    read = []
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: read.append(1))
    monkeypatch.setattr(ssl.SSLContext, "set_default_verify_paths", lambda *_: read.append(1))
    try:
        for _ in range(2):
            answer = await outgoing.fetch("GET", f"http://{registry_server.endpoint}/v2/", verify=False)
            assert answer.status == 200
    finally:
        await outgoing.close()
    assert read == []
