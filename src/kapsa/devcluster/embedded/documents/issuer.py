"""The documents of the token issuer: OpenID discovery, and the key that tokens are verified with."""

from __future__ import annotations

import msgspec

from kapsa.devcluster.embedded.authentication.tokens import ISSUER, Tokens
from kapsa.devcluster.wire.exchange import Reply, Request

__all__ = ["answer"]

_KEYS = "/openid/v1/jwks"


def answer(request: Request, tokens: Tokens) -> Reply | None:
    """Serve a request for one of the documents; None for any other path."""
    if request.method not in ("GET", "HEAD"):
        return None
    if request.path == _KEYS:
        return _reply("application/jwk-set+json", tokens.key_set())
    if request.path != "/.well-known/openid-configuration":
        return None
    return _reply(
        "application/json",
        {
            "issuer": ISSUER,
            "jwks_uri": f"https://{request.headers.get('host', 'localhost')}{_KEYS}",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        },
    )


def _reply(content_type: str, document: object) -> Reply:
    headers = {"content-type": content_type, "cache-control": "public, max-age=3600"}
    return Reply(status=200, headers=headers, body=msgspec.json.encode(document))
