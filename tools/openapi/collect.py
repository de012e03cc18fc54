"""Writes the embedded server's data file of built-in kinds from a running real API server.

    python tools/openapi/collect.py --kubeconfig FILE

Reads discovery, OpenAPI v3 and tables through `kubectl proxy`, strips the descriptions of fields, keeps what a
server needs (types, formats, list types, map and merge keys, defaults, required fields, descriptions of table
columns) and writes one compressed file named after the server's minor version.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "src/kapsa/devcluster/embedded/data"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PREFIX = "#/components/schemas/"
PER_GROUP_KINDS = {
    # Kinds that every group lists as its own; the embedded server adds them where they belong.
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent",
}


class Cluster:
    """GET requests through kubectl's proxy, which brings the credentials."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, path: str, accept: str = "application/json") -> Any:
        request = urllib.request.Request(f"http://{self._address}{path}", headers={"Accept": accept})
        with urllib.request.urlopen(request) as response:
            return json.load(response)


@contextlib.contextmanager
def connect(kubectl: str, kubeconfig: str) -> Iterator[Cluster]:
    command = [kubectl, "--kubeconfig", kubeconfig, "proxy", "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            # "Starting to serve on 127.0.0.1:40001"
            yield Cluster(proxy.stdout.readline().split()[-1])
        finally:
            proxy.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kubeconfig", required=True, help="of the real cluster")
    parser.add_argument("--kubectl", default="kubectl")
    arguments = parser.parse_args()
    with connect(arguments.kubectl, arguments.kubeconfig) as cluster:
        version = cluster.get("/version")
        built_in = groups(cluster)
        data = {
            "version": {
                key: version[key] for key in ("major", "minor", "gitVersion", "gitCommit", "buildDate")
            },
            "groups": built_in,
            "columns": columns(cluster, built_in),
            "definitions": definitions(cluster),
        }
    target = DATA / f"kubernetes-{version['major']}.{version['minor']}.json.gz"
    text = json.dumps(data, separators=(",", ":"), sort_keys=True).encode()
    with target.open("wb") as file, gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
        packed.write(text)
    print(
        f"{target.name}: {len(data['definitions'])} definitions, {len(text)} bytes, {target.stat().st_size} packed"
    )


def custom_groups(cluster: Cluster) -> set[str]:
    """Return the groups that CustomResourceDefinitions of this cluster added to those of Kubernetes."""
    listed = cluster.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
    return {definition["spec"]["group"] for definition in listed}


def groups(cluster: Cluster) -> list[dict[str, Any]]:
    """Return each built-in group-version with its resources, in the server's order, core first."""
    custom = custom_groups(cluster)
    built_in = [{"name": "", "version": "v1", "resources": resources(cluster, "/api/v1")}]
    for group in cluster.get("/apis")["groups"]:
        for version in group["versions"] if group["name"] not in custom else ():
            path = f"/apis/{version['groupVersion']}"
            built_in.append(
                {
                    "name": group["name"],
                    "version": version["version"],
                    "resources": resources(cluster, path),
                }
            )
    return built_in


def resources(cluster: Cluster, path: str) -> list[dict[str, Any]]:
    kept = (
        "name",
        "kind",
        "singularName",
        "namespaced",
        "verbs",
        "shortNames",
        "categories",
        "group",
        "version",
    )
    return [
        {key: resource[key] for key in kept if resource.get(key)}
        for resource in cluster.get(path)["resources"]
    ]


def columns(cluster: Cluster, built_in: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the descriptions of the columns of each resource's table, by group/resource."""
    texts = {}
    for group in built_in:
        root = f"/apis/{group['name']}/{group['version']}" if group["name"] else "/api/v1"
        for resource in group["resources"]:
            if "list" in resource["verbs"]:
                table = cluster.get(f"{root}/{resource['name']}?limit=1", TABLE)
                described = [column["description"] for column in table["columnDefinitions"]]
                texts[f"{group['name']}/{resource['name']}"] = described
    return texts


def definitions(cluster: Cluster) -> dict[str, Any]:
    by_name: dict[str, Any] = {}
    custom = custom_groups(cluster)
    for path, document in cluster.get("/openapi/v3")["paths"].items():
        if path.removeprefix("apis/").partition("/")[0] in custom:
            continue
        schemas = cluster.get(document["serverRelativeURL"]).get("components", {}).get("schemas", {})
        for definition, schema in schemas.items():
            compact = strip(schema)
            if definition in PER_GROUP_KINDS:
                compact.pop("x-kubernetes-group-version-kind", None)
            by_name[definition] = compact
    return by_name


def strip(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without descriptions, and with each reference in a single allOf as a plain one."""
    kept = {key: value for key, value in schema.items() if key != "description"}
    wrapped = kept.pop("allOf", None)
    if wrapped is not None:
        (reference,) = wrapped
        kept |= reference
    if "$ref" in kept:
        kept["$ref"] = kept["$ref"].removeprefix(PREFIX)
    if "properties" in kept:
        kept["properties"] = {name: strip(child) for name, child in kept["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = strip(kept[key])
    return kept


if __name__ == "__main__":
    main()
