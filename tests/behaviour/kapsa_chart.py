"""The chart of this repository in the hands of the real Helm: rendered, and on a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from kapsa.adapters.process.tools import find_tool
from kapsa.devcluster import DevCluster
from kapsa.runtime import Client, ClientError, NotFound
from tests.environments.open_kinds import open_kind
from tests.eventually import eventually

__all__ = [
    "CHART",
    "FLEET_VALUES",
    "HOME",
    "ROOT",
    "act",
    "create_open_kinds",
    "eventually_all_gone",
    "exists",
    "helm",
    "only",
    "rendered",
]

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "kapsa"
HOME = "kapsa-system"
FLEET_VALUES = {
    "enabled": True,
    "database": {"secretName": "fleet-database"},
    "encryptionKeys": {"secretName": "fleet-keys"},
    "authentication": {"issuer": "https://id.example.com", "jwksUrl": "https://id.example.com/keys"},
    "tls": {"secretName": "fleet-tls"},
}
"""The values that the fleet manager requires."""


async def helm(*arguments: str | Path, cluster: DevCluster | None = None) -> tuple[int, str]:
    """Run Helm. Return its exit code and its output."""
    where = [f"--kubeconfig={cluster.kubeconfig}"] if cluster is not None else []
    process = await asyncio.create_subprocess_exec(
        find_tool("helm").path,
        *where,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def rendered(
    tmp_path: Path, values: Mapping[str, Any] | None = None, *arguments: str
) -> list[dict[str, Any]]:
    """Return the objects of the chart under these values."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values or {})))
    code, out = await helm("template", "kapsa", CHART, f"--namespace={HOME}", f"--values={file}", *arguments)
    assert code == 0, out
    return [each for each in yaml.safe_load_all(out) if each]


def only(objects: Sequence[Mapping[str, Any]], kind: str, name: str = "") -> Any:
    """Return the one object of a kind."""
    matches = [each for each in objects if each["kind"] == kind and name in ("", each["metadata"]["name"])]
    assert len(matches) == 1, [each["metadata"]["name"] for each in matches]
    return matches[0]


async def act(cluster: DevCluster, *arguments: str | Path) -> str:
    """Run Helm on a cluster, successfully. Return its output."""
    code, out = await helm(*arguments, f"--namespace={HOME}", cluster=cluster)
    assert code == 0, out
    return out


async def create_open_kinds(client: Client, *kinds: str) -> None:
    """Create kinds of other programs that accept any content, and wait until they are served."""
    for kind in kinds:
        await client.create(open_kind(kind))

    async def served() -> bool:
        try:
            for kind in kinds:
                await client.list(kind)
        except ClientError:
            return False
        return True

    await eventually(served, bool, f"{', '.join(kinds)} are served", seconds=300)


async def exists(client: Client, kind: str, name: str, namespace: str = HOME) -> bool:
    """Return whether a cluster has an object."""
    try:
        await client.get(kind, name, namespace=namespace)
    except NotFound:
        return False
    return True


async def eventually_all_gone(client: Client, objects: Mapping[str, str]) -> None:
    """Wait until a cluster has none of these objects, by kind and name."""

    async def left() -> list[str]:
        return [kind for kind, name in objects.items() if await exists(client, kind, name)]

    await eventually(left, lambda kinds: not kinds, "everything is gone", seconds=300)
