"""The diff of two manifests: everything that changes, and nothing secret in any form."""

from __future__ import annotations

import base64
import json
from typing import Any

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
    text = diff(config(a="x"), config(a="x", ca=certificate, name="widget-operator", size="12345678"))
    assert f"+  ca: {certificate}" in text
    assert "+  name: widget-operator" in text
    assert "+  size: '12345678'" in text
