"""Updates of volumes and claims whose errors end in a dump in the real server, so that only their fields agree."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.devcluster.wire.status_errors import StatusError
from tests.devcluster.embedded.strategies.conftest import ApiServer

CSI = {"driver": "a.b", "volumeHandle": "c"}
CLAIM = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}, "limits": {"storage": "2Gi"}},
}


async def volume(api: ApiServer, **source: Any) -> dict[str, Any]:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **source}
    return await api.create("persistentvolumes", "data", spec=spec)


@pytest.mark.parametrize(
    "source",
    [
        {"csi": {**CSI, "volumeHandle": "d"}},
        {"csi": {**CSI, "fsType": "ext4"}},
        {"csi": {**CSI, "nodeStageSecretRef": {"name": "a", "namespace": "b"}}},
        {"csi": None, "nfs": {"server": "a", "path": "/b"}},
    ],
)
async def test_the_source_of_a_volume_is_immutable(api: ApiServer, source: dict[str, Any]) -> None:
    stored = await volume(api, csi=CSI)
    stored["spec"] = {**stored["spec"], **source}
    with pytest.raises(StatusError, match=r"spec\.persistentvolumesource is immutable after creation"):
        await api.update("persistentvolumes", stored)


async def test_the_path_of_a_local_volume_is_immutable(api: ApiServer) -> None:
    stored = await volume(api, hostPath={"path": "/a"})
    stored["spec"]["hostPath"]["path"] = "/b"
    with pytest.raises(StatusError, match=r"spec\.persistentvolumesource: Forbidden"):
        await api.update("persistentvolumes", stored)


@pytest.mark.parametrize(
    "resources",
    [
        {"requests": {"storage": "2Gi"}, "limits": {"storage": "2Gi"}},
        {"requests": {"storage": "1Gi", "example.com/a": "1"}, "limits": {"storage": "2Gi"}},
        {"requests": {"storage": "1Gi"}, "limits": {"storage": "3Gi"}},
        {"requests": {"storage": "1Gi"}},
    ],
)
async def test_a_claim_that_is_not_bound_keeps_its_resources(
    api: ApiServer, resources: dict[str, Any]
) -> None:
    stored = await api.create("persistentvolumeclaims", "data", spec=CLAIM)
    stored["spec"]["resources"] = resources
    with pytest.raises(StatusError, match=r"spec is immutable after creation except resources\.requests"):
        await api.update("persistentvolumeclaims", stored)
