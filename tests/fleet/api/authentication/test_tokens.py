"""Tokens: what is accepted, and what a hostile caller may try."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kapsa.adapters.errors import Unreachable
from kapsa.adapters.http.client import HttpResponse
from kapsa.fleet.api.authentication.jwks import IssuerKeys
from kapsa.fleet.api.authentication.keys import LocalKey
from kapsa.fleet.api.authentication.tokens import InvalidToken, TokenVerifier
from kapsa.fleet.domain.principals import Role
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from tests.fleet.api.harness import AUDIENCE, ISSUER, SIGNING_KEY, claims, token

VERIFIER = TokenVerifier(LocalKey(SIGNING_KEY.public_key()), issuer=ISSUER, audience=AUDIENCE)
PUBLIC_PEM = SIGNING_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
PUBLIC_RAW = SIGNING_KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def _packed(value: Any) -> str:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _signed_with_hmac(key: bytes) -> str:
    head = f"{_packed({'alg': 'HS256', 'typ': 'JWT'})}.{_packed(claims())}"
    return f"{head}.{_packed(hmac.new(key, head.encode(), hashlib.sha256).digest())}"


def _forged(header: dict[str, Any]) -> str:
    """Return a token with a valid signature and more headers."""
    head = f"{_packed({'alg': 'EdDSA', 'typ': 'JWT', **header})}.{_packed(claims())}"
    return f"{head}.{_packed(SIGNING_KEY.sign(head.encode()))}"


async def test_a_token_gives_subject_roles_environments_and_expiry() -> None:
    text = token(
        "maria", "Operator", "EnvironmentOwner:Staging", "Emperor", "EnvironmentOwner", email="m@example.com"
    )
    caller = await VERIFIER.caller(text)
    assert caller.principal.subject == "maria"
    assert caller.principal.roles == {Role.OPERATOR, Role.ENVIRONMENT_OWNER}
    assert caller.principal.owned == {ClusterEnvironment.STAGING}
    assert caller.principal.email == "m@example.com"
    assert caller.expires_at.timestamp() == pytest.approx(time.time() + 600, abs=5)


async def test_roles_are_read_from_a_nested_claim_and_from_text() -> None:
    keys = LocalKey(SIGNING_KEY.public_key())
    nested = TokenVerifier(keys, issuer=ISSUER, audience=AUDIENCE, roles_claim="realm_access.roles")
    caller = await nested.caller(token(roles=None, realm_access={"roles": ["Viewer", 5]}))
    assert caller.principal.roles == {Role.VIEWER}
    assert (await VERIFIER.caller(token(roles="Viewer Operator"))).principal.has(Role.OPERATOR)
    for odd in (5, {"Admin": True}, [["Admin"]], None, "EnvironmentOwner:Mars", ["admin"]):
        assert (await VERIFIER.caller(token(roles=odd))).principal.roles == frozenset()


OTHER_KEY = Ed25519PrivateKey.generate()


def _from_now(seconds: int) -> int:
    return int(time.time()) + seconds


REFUSED: dict[str, Callable[[], str]] = {
    "empty": lambda: "",
    "not a token": lambda: "hello",
    "two parts": lambda: "a.b",
    "none": lambda: f"{_packed({'alg': 'none', 'typ': 'JWT'})}.{_packed(claims())}.",
    "None": lambda: f"{_packed({'alg': 'None'})}.{_packed(claims())}.",
    "no algorithm": lambda: f"{_packed({'typ': 'JWT'})}.{_packed(claims())}.AAAA",
    "HMAC with the public key as PEM": lambda: _signed_with_hmac(PUBLIC_PEM),
    "HMAC with the raw public key": lambda: _signed_with_hmac(PUBLIC_RAW),
    "algorithm of another key": lambda: _forged({"alg": "RS256"}),
    "another key": lambda: jwt.encode(claims(), OTHER_KEY, algorithm="EdDSA"),
    "changed claims": lambda: ".".join(
        [token().split(".")[0], _packed(claims("root")), token().split(".")[2]]
    ),
    "no signature": lambda: token().rpartition(".")[0] + ".",
    "embedded key": lambda: _forged({"jwk": {"kty": "OKP", "crv": "Ed25519", "x": _packed(PUBLIC_RAW)}}),
    "address of keys": lambda: _forged({"jku": "https://attacker.example.com/keys"}),
    "certificate": lambda: _forged({"x5c": ["MIIB"]}),
    "address of a certificate": lambda: _forged({"x5u": "https://attacker.example.com/cert"}),
    "critical header": lambda: _forged({"crit": ["b64"], "b64": False}),
    "unencoded payload": lambda: _forged({"b64": False}),
    "key id as a path": lambda: _forged({"kid": "../../../../dev/null"}),
    "key id as SQL": lambda: _forged({"kid": "' UNION SELECT 'key"}),
    "key id too long": lambda: _forged({"kid": "k" * 5000}),
    "key id with a line break": lambda: _forged({"kid": "a\nb"}),
    "another type": lambda: _forged({"typ": "JWE"}),
    "expired": lambda: token(nbf=_from_now(-900), exp=_from_now(-31)),
    "too early": lambda: token(nbf=_from_now(3600), exp=_from_now(7200)),
    "issued in the future": lambda: token(iat=_from_now(3600)),
    "without exp": lambda: token(exp=None),
    "without nbf": lambda: token(nbf=None),
    "without iss": lambda: token(iss=None),
    "without aud": lambda: token(aud=None),
    "without sub": lambda: token(sub=None),
    "another issuer": lambda: token(iss="https://other.example.com"),
    "another audience": lambda: token(aud="other"),
    "audience as a prefix": lambda: token(aud=f"{AUDIENCE}-admin"),
    "exp as text": lambda: token(exp="tomorrow"),
    "exp as a boolean": lambda: token(exp=True),
    "huge exp": lambda: token(exp=1e300),
    "empty subject": lambda: token(""),
    "subject with a line break": lambda: token("maria\n2026 INFO admin signed in"),
    "subject of the manager": lambda: token("system:engine"),
    "subject too long": lambda: token("m" * 300),
    "huge": lambda: token(padding="x" * 8192),
}
"""Each made when its test runs: one that is dated when the module is imported may have expired by then."""


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED.keys())
async def test_a_hostile_token_is_refused(make: Callable[[], str]) -> None:
    with pytest.raises(InvalidToken) as error:
        await VERIFIER.caller(make())
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 120


async def test_a_manager_may_be_a_minute_behind_the_issuer_and_half_a_minute_ahead() -> None:
    await VERIFIER.caller(token(nbf=_from_now(-900), exp=_from_now(-20)))
    await VERIFIER.caller(token(nbf=_from_now(60), iat=_from_now(60)))


async def test_claims_that_python_reads_as_infinity_are_refused() -> None:
    head = (
        f"{_packed({'alg': 'EdDSA', 'typ': 'JWT'})}.{_packed(json.dumps(claims(exp=float('inf'))).encode())}"
    )
    text = f"{head}.{_packed(SIGNING_KEY.sign(head.encode()))}"
    with pytest.raises(InvalidToken):
        await VERIFIER.caller(text)


class FakeIssuer:
    """An issuer that counts how often its keys are fetched."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.keys = list(keys)
        self.fetches = 0
        self.fails = False

    async def fetch(self, method: str, url: str, **_: Any) -> HttpResponse:
        self.fetches += 1
        if self.fails:
            raise Unreachable("the issuer is away")
        return HttpResponse(200, {}, json.dumps({"keys": self.keys}).encode())


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _published(key: Any, key_id: str | None = None, **changes: Any) -> dict[str, Any]:
    algorithms: dict[type, Any] = {
        rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
        Ed25519PrivateKey: jwt.algorithms.OKPAlgorithm,
    }
    maker = next(maker for kind, maker in algorithms.items() if isinstance(key, kind))
    document = json.loads(maker.to_jwk(key.public_key()))
    document.pop("key_ops", None)
    return {**document, **({"kid": key_id} if key_id else {}), **changes}


RSA_KEY = rsa.generate_private_key(65537, 2048)
SMALL_KEY = rsa.generate_private_key(65537, 1024)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
P384_KEY = ec.generate_private_key(ec.SECP384R1())


def _verifier(issuer: FakeIssuer, clock: Clock) -> TokenVerifier:
    keys = IssuerKeys(issuer, "https://issuer.example.com/keys", monotonic=clock)
    return TokenVerifier(keys, issuer=ISSUER, audience=AUDIENCE)


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(RSA_KEY, "RS256"), (EC_KEY, "ES256"), (SIGNING_KEY, "EdDSA")],
    ids=["rsa", "ec", "ed25519"],
)
async def test_the_type_of_an_issuers_key_decides_on_the_algorithm(key: Any, algorithm: str) -> None:
    verifier = _verifier(FakeIssuer(_published(key, "k1")), Clock())
    text = jwt.encode(claims("maria"), key, algorithm=algorithm, headers={"kid": "k1"})
    assert (await verifier.caller(text)).principal.subject == "maria"


async def test_other_algorithms_of_the_same_key_and_weak_keys_are_refused() -> None:
    issuer = FakeIssuer(
        _published(RSA_KEY, "rsa"),
        _published(SMALL_KEY, "small"),
        _published(P384_KEY, "p384"),
        _published(EC_KEY, "encryption", use="enc"),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"},
    )
    verifier = _verifier(issuer, Clock())
    for key, algorithm, key_id in (
        (RSA_KEY, "PS256", "rsa"),
        (RSA_KEY, "RS512", "rsa"),
        (SMALL_KEY, "RS256", "small"),
        (P384_KEY, "ES384", "p384"),
        (EC_KEY, "ES256", "encryption"),
        (b"secret", "HS256", "shared"),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyJWT warns of the weak keys
            text = jwt.encode(claims(), key, algorithm=algorithm, headers={"kid": key_id})
        with pytest.raises(InvalidToken):
            await verifier.caller(text)


async def test_an_unknown_key_id_causes_one_fetch_in_ten_seconds() -> None:
    clock, issuer = Clock(), FakeIssuer(_published(EC_KEY, "old"))
    verifier = _verifier(issuer, clock)
    await verifier.caller(jwt.encode(claims(), EC_KEY, algorithm="ES256", headers={"kid": "old"}))
    clock.now = 20.0
    fresh = ec.generate_private_key(ec.SECP256R1())
    issuer.keys.append(_published(fresh, "new"))
    rotated = jwt.encode(claims("eve"), fresh, algorithm="ES256", headers={"kid": "new"})
    assert (await verifier.caller(rotated)).principal.subject == "eve"
    assert issuer.fetches == 2
    for number in range(50):
        with pytest.raises(InvalidToken, match="unknown key"):
            await verifier.caller(
                jwt.encode(claims(), EC_KEY, algorithm="ES256", headers={"kid": f"x{number}"})
            )
    assert issuer.fetches == 2


async def test_a_withdrawn_key_is_refused_after_ten_minutes_and_an_outage_is_survived_for_an_hour() -> None:
    clock, issuer = Clock(), FakeIssuer(_published(EC_KEY, "k"))
    verifier = _verifier(issuer, clock)
    text = jwt.encode(claims(), EC_KEY, algorithm="ES256", headers={"kid": "k"})
    await verifier.caller(text)
    issuer.fails = True
    clock.now = 700.0
    await verifier.caller(text)
    issuer.fails, issuer.keys = False, [_published(RSA_KEY, "other")]
    clock.now = 1400.0
    with pytest.raises(InvalidToken, match="unknown key"):
        await verifier.caller(text)
    issuer.keys = [_published(EC_KEY, "k")]
    clock.now = 2100.0
    await verifier.caller(text)
    issuer.fails = True
    clock.now = 9000.0
    with pytest.raises(InvalidToken, match="unknown key"):
        await verifier.caller(text)
