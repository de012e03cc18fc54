"""Writes the embedded server's data file of bootstrap objects from two running real clusters.

    python tools/bootstrap/collect.py --kubeconfig FILE --with-controllers FILE

Reads through `kubectl proxy` the objects that a kube-apiserver creates when it starts: default roles and bindings, flow
schemas, priority classes, API services, namespaces, and the Service of the server itself. UIDs, revisions and times
become marks that the embedded server fills in. The first cluster must have no controllers. From the second one come
the roles whose rules a controller has aggregated. What belongs to one cluster, such as its certificates and ports, is
left out.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kapsa.devcluster.embedded.codec.stored_form import stored_form
from kapsa.devcluster.embedded.kinds.builtins import builtin_resources
from kapsa.devcluster.embedded.kinds.registry import ResourceRegistry

DATA = Path(__file__).parents[2] / "src/kapsa/devcluster/embedded/data"
ROLES = ("rbac.authorization.k8s.io", "v1", "clusterroles")
RESOURCES = (
    ("", "v1", "namespaces"),
    ("scheduling.k8s.io", "v1", "priorityclasses"),
    ("flowcontrol.apiserver.k8s.io", "v1", "prioritylevelconfigurations"),
    ("flowcontrol.apiserver.k8s.io", "v1", "flowschemas"),
    ("apiregistration.k8s.io", "v1", "apiservices"),
    ROLES,
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "v1", "roles"),
    ("rbac.authorization.k8s.io", "v1", "rolebindings"),
    ("networking.k8s.io", "v1", "servicecidrs"),
    ("networking.k8s.io", "v1", "ipaddresses"),
    ("", "v1", "services"),
)
CREATORS = ("kube-apiserver", "api-priority-and-fairness-", "kubernetes-service-cidr-controller")
"""Prefixes of the field managers of a kube-apiserver itself."""
AGGREGATOR = "clusterrole-aggregation-controller"
UID, REVISION, TIME, PORT = "@uid@", 1_000_000_007, "@time@", 1_000_000_009
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kubeconfig", required=True, help="of a real cluster without controllers")
    parser.add_argument(
        "--with-controllers", required=True, help="kubeconfig of a real cluster with controllers"
    )
    parser.add_argument("--kubectl", default="kubectl")
    arguments = parser.parse_args()
    registry = ResourceRegistry(builtin_resources())
    with connect(arguments.kubectl, arguments.kubeconfig) as address:
        version = get(address, "/version")
        objects = [
            entry(registry.get(*resource), marked(obj))
            for resource in RESOURCES
            for obj in items(address, *resource)
            if any(manager.startswith(CREATORS) for manager in managers(obj))
        ]
    with connect(arguments.kubectl, arguments.with_controllers) as address:
        aggregated = [
            entry(registry.get(*ROLES), marked(obj))
            for obj in items(address, *ROLES)
            if AGGREGATOR in managers(obj)
        ]
    target = DATA / f"bootstrap-{version['major']}.{version['minor']}.json.gz"
    text = json.dumps({"objects": objects, "aggregated": aggregated}, separators=(",", ":")).encode()
    with target.open("wb") as file, gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
        packed.write(text)
    print(f"{target.name}: {len(objects)} objects, {len(text)} bytes, {target.stat().st_size} packed")


@contextlib.contextmanager
def connect(kubectl: str, kubeconfig: str) -> Iterator[str]:
    command = [kubectl, "--kubeconfig", kubeconfig, "proxy", "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            # "Starting to serve on 127.0.0.1:40001"
            yield proxy.stdout.readline().split()[-1]
        finally:
            proxy.terminate()


def get(address: str, path: str) -> Any:
    with urllib.request.urlopen(f"http://{address}{path}") as response:
        return json.load(response)


def items(address: str, group: str, version: str, resource: str) -> list[dict[str, Any]]:
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    listed: list[dict[str, Any]] = get(address, f"{root}/{resource}")["items"]
    return listed


def managers(obj: dict[str, Any]) -> list[str]:
    return [entry["manager"] for entry in obj["metadata"].get("managedFields") or ()]


def marked(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the object with marks for what differs from cluster to cluster."""
    masked: dict[str, Any] = json.loads(_TIME.sub(TIME, json.dumps(obj)))
    masked["metadata"] |= {"uid": UID, "resourceVersion": str(REVISION)}
    for port in masked.get("spec", {}).get("ports") or () if masked.get("spec", {}).get("clusterIP") else ():
        port["targetPort"] = PORT
    return masked


def entry(info: Any, obj: dict[str, Any]) -> dict[str, Any]:
    """Return the object as the embedded server stores it."""
    stored = stored_form(info, obj, REVISION)
    return {
        "group": info.group,
        "resource": info.resource,
        "key": stored.key,
        "namespace": stored.namespace,
        "name": stored.name,
        "labels": stored.labels,
        "body": stored.body.decode(),
    }


if __name__ == "__main__":
    main()
