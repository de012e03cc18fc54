"""The diff of two manifests: everything that changes, and nothing secret in any form."""

from __future__ import annotations

import base64
import json
import textwrap
from typing import Any
from urllib.parse import quote

import pytest

from kapsa.fleet.domain.values import MASK
from kapsa.fleet.infrastructure.preflight.manifest_diff import manifest_diff

PASSWORD = "hunter2-very-secret"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7v\n-----END RSA PRIVATE KEY-----\n"
Manifest = dict[str, Any]


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def config(**data: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config"}, "data": data}


def secret(field: str = "data", **data: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, field: data}


def diff(before: Manifest | None, after: Manifest) -> str:
    return manifest_diff([before] if before else [], [after], "widgets", (PASSWORD,))


@pytest.mark.parametrize(
    "shown",
    [
        PASSWORD,
        f"postgres://app:{PASSWORD}@db/app",
        f"https://db/?password={PASSWORD}",
        coded(PASSWORD),
        coded(json.dumps({"auths": {"registry": {"password": PASSWORD}}})),
        coded(coded(f"user:{PASSWORD}")),
        base64.urlsafe_b64encode(f"?>?>{PASSWORD}".encode()).decode(),
        KEY,
        coded(KEY),
    ],
    ids=["plain", "url", "query", "coded", "json", "twice", "url-safe", "key", "coded-key"],
)
def test_a_secret_value_is_hidden_in_every_form(shown: str) -> None:
    text = diff(config(a="old", shown="x"), config(a="new", shown=shown))
    assert "+  a: new" in text
    for part in (PASSWORD, "MIIEpAIBAAKCAQEA7v", shown):
        assert part not in text


LOGIN = coded(f"user:{PASSWORD}")
FOLDED = "\n".join(LOGIN[start : start + 10] for start in range(0, len(LOGIN), 10))


@pytest.mark.parametrize(
    "shown",
    [
        json.dumps({"auths": {"r": {"auth": LOGIN}}}),
        f"--creds={LOGIN}",
        f"https://db/login/{LOGIN.rstrip('=')}",
        f"mode=fast login-{LOGIN} verbose",
        f"https://db/?login={quote(coded(f'???>>>{PASSWORD}'), safe='')}",
        json.dumps({"login": coded(f"???>>>{PASSWORD}")}).replace("/", "\\/"),
        json.dumps({"login": FOLDED}),
        f"login: |\n{textwrap.indent(FOLDED, '  ')}\nmode: fast",
        json.dumps({"outer": coded(json.dumps({"inner": LOGIN}))}),
        base64.b64encode(b"\xff\xfe\x00" + PASSWORD.encode()).decode(),
    ],
    ids=["json", "option", "path", "word", "query", "slash", "json-fold", "fold", "twice", "binary"],
)
def test_a_secret_value_is_hidden_in_a_code_within_a_text(shown: str) -> None:
    for text in (diff(config(a="old"), config(a="new", shown=shown)), diff(None, config(**{shown: "x"}))):
        assert MASK in text
        for start in range(len(shown) - 8):
            assert shown[start : start + 9] not in text


def test_a_secret_value_is_hidden_in_names_and_keys() -> None:
    named = {**config(**{PASSWORD: "x"}), "metadata": {"name": f"for-{PASSWORD}"}}
    assert PASSWORD not in diff(None, named)


def test_a_secret_shows_no_more_than_which_of_its_values_change() -> None:
    # A certificate that is made at each render changes each time.
    before, after = secret(key=coded(KEY), user=coded("app")), secret(key=coded("another"), user=coded("app"))
    text = diff(before, after)
    assert f"-  key: {MASK} (before)\n+  key: {MASK} (after)\n   user: {MASK}" in text
    assert coded("app") not in diff(None, after)
    assert "plain" not in diff(before, secret("stringData", key="plain text"))


def test_a_change_of_nothing_but_hidden_text_is_named() -> None:
    before, after = (config(url=f"postgres://{user}:{PASSWORD}@db") for user in ("old", "new"))
    assert diff(before, after) == "# ConfigMap widgets/config changes in text that is hidden"


def test_certificates_and_other_coded_texts_stay_readable() -> None:
    certificate = coded("-----BEGIN CERTIFICATE-----\nMIIC\n-----END CERTIFICATE-----\n")
    login = f"--registry=https://registry.example.com/{coded('reader:public')} --verbose"
    text = diff(
        config(a="x"), config(a="x", ca=certificate, login=login, name="widget-operator", size="12345678")
    )
    assert f"+  ca: {certificate}" in text
    assert f"+  login: {login}" in text
    assert "+  name: widget-operator" in text
    assert "+  size: '12345678'" in text
