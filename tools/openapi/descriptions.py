"""Writes the descriptions of the built-in kinds' fields from a running real API server.

    python tools/openapi/descriptions.py --kubeconfig FILE

The embedded server adds them to the OpenAPI documents that it serves, so that `kubectl explain` prints them. They are
in a file of their own, because nothing else needs them and the start of a server should not read them. The file
names its origin and licence.
"""

from __future__ import annotations

import argparse
import gzip
import json
from typing import Any

from collect import DATA, Cluster, connect, custom_groups

LICENCE = (
    "Descriptions of the fields of the Kubernetes API, from the OpenAPI documents of kube-apiserver {version}. "
    "Copyright The Kubernetes Authors, Apache License 2.0, https://www.apache.org/licenses/LICENSE-2.0."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kubeconfig", required=True, help="of the real cluster")
    parser.add_argument("--kubectl", default="kubectl")
    arguments = parser.parse_args()
    with connect(arguments.kubectl, arguments.kubeconfig) as cluster:
        version = cluster.get("/version")
        texts = descriptions(cluster)
    data = {"licence": LICENCE.format(version=version["gitVersion"]), "definitions": texts}
    target = DATA / f"descriptions-{version['major']}.{version['minor']}.json.gz"
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()
    with target.open("wb") as file, gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
        packed.write(text)
    print(f"{target.name}: {len(texts)} definitions, {len(text)} bytes, {target.stat().st_size} packed")


def descriptions(cluster: Cluster) -> dict[str, Any]:
    """Collect the texts of each definition by its name, in the order of the names."""
    texts: dict[str, Any] = {}
    custom = custom_groups(cluster)
    for path, document in cluster.get("/openapi/v3")["paths"].items():
        if path.removeprefix("apis/").partition("/")[0] in custom:
            continue
        schemas = cluster.get(document["serverRelativeURL"]).get("components", {}).get("schemas", {})
        texts |= {name: texts_of(schema) for name, schema in schemas.items()}
    return {name: texts[name] for name in sorted(texts) if texts[name]}


def texts_of(schema: dict[str, Any]) -> dict[str, str]:
    """Collect the text of a definition under the empty name, and those of its properties under theirs."""
    texts = {"": schema.get("description", "")}
    for name, child in schema.get("properties", {}).items():
        texts[name] = child.get("description", "")
        for key in ("items", "additionalProperties"):
            nested = child.get(key)
            if isinstance(nested, dict) and "description" in json.dumps(nested):
                raise ValueError(f"property {name} has a description below it, which this file cannot hold")
    return {name: text for name, text in texts.items() if text}


if __name__ == "__main__":
    main()
