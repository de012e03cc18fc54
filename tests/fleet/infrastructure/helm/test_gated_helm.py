"""Releases that the real helm changes behind the gate."""

from __future__ import annotations

from kapsa.devcluster import DevCluster
from tests.fleet.real_helm import CLUSTER, lease, real_helm


async def test_a_release_is_installed_upgraded_rolled_back_and_removed_and_each_write_is_audited() -> None:
    async with DevCluster(tls=True) as cluster, real_helm(cluster) as made:
        assert await made.upgrade("1.0.0") == 1
        assert await made.upgrade("2.0.0") == 2
        assert await made.data() == {"version": "2.0.0"}
        assert await made.helm.rollback(CLUSTER, made.release(), 1, lease()) == 3
        assert await made.data() == {"version": "1.0.0"}
        history = await made.helm.history(CLUSTER, made.release())
        assert [(each.revision, each.status.value, each.version, each.description) for each in history] == [
            (1, "superseded", "1.0.0", "demo 1.0.0"),
            (2, "superseded", "2.0.0", "demo 2.0.0"),
            (3, "deployed", "1.0.0", "Rollback to 1"),
        ]
        await made.helm.uninstall(CLUSTER, made.release(), lease())
        assert await made.states() == []
    first = made.audit.entries[1].payload
    assert [write["verb"] + " " + write["resource"] for write in first["writes"]] == [
        f"PATCH namespaces {made.namespace}",
        f"POST secrets {made.namespace}/",
        f"PATCH configmaps {made.namespace}/app",
        f"PUT secrets {made.namespace}/sh.helm.release.v1.demo.v1",
    ]
    verbs = ("upgrade", "upgrade", "rollback", "uninstall")
    assert made.audit.actions() == [f"helm.{verb}{end}" for verb in verbs for end in ("Begin", "")]
