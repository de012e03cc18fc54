"""ConfigMaps and Secrets."""

from __future__ import annotations

import pytest

from kapsa.devcluster.wire.status_errors import StatusError
from tests.devcluster.embedded.strategies.conftest import ApiServer


async def test_string_data_of_a_secret_becomes_data(api: ApiServer) -> None:
    stored = await api.create("secrets", "s", stringData={"a": "hello"}, data={"a": "eA==", "b": "eQ=="})
    assert (stored["data"], stored["type"]) == ({"a": "aGVsbG8=", "b": "eQ=="}, "Opaque")
    assert "stringData" not in stored


async def test_an_immutable_config_map_rejects_changes(api: ApiServer) -> None:
    stored = await api.create("configmaps", "c", immutable=True, data={"a": "1"})
    stored["data"] = {"a": "2"}
    del stored["immutable"]
    with pytest.raises(StatusError) as rejected:
        await api.update("configmaps", stored)
    assert rejected.value.message == (
        'ConfigMap "c" is invalid: [immutable: Forbidden: field is immutable when `immutable` is set, '
        "data: Forbidden: field is immutable when `immutable` is set]"
    )


async def test_the_type_of_a_secret_is_immutable(api: ApiServer) -> None:
    stored = await api.create("secrets", "s")
    with pytest.raises(StatusError, match=r'type: Invalid value: "other": field is immutable'):
        await api.update("secrets", {**stored, "type": "other"})


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("kubernetes.io/tls", "data[tls.crt]: Required value"),
        ("kubernetes.io/ssh-auth", "data[ssh-privatekey]"),
    ],
)
async def test_a_secret_of_a_known_type_requires_its_keys(api: ApiServer, kind: str, missing: str) -> None:
    assert missing in await api.rejection("secrets", "s", type=kind)
