"""The operators of the fleet benchmark: their charts and releases are the same objects."""

from __future__ import annotations

import gzip
import io
import json
import tarfile

from bench.fleet.charts import WebhookAddress, operator_chart, release_objects, release_secret, widget_crd
from kapsa.adapters.helm.release_secret import read_release
from kapsa.adapters.manifests.yaml_documents import load_objects

WEBHOOK = WebhookAddress("https://127.0.0.1:1/", "Q0E=")


def chart_files(archive: bytes) -> dict[str, str]:
    files = {}
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(archive))) as packed:
        for member in packed.getmembers():
            content = packed.extractfile(member)
            assert content is not None
            files[member.name] = content.read().decode()
    return files


def test_a_release_has_the_objects_of_its_chart() -> None:
    release = read_release(release_secret("operator-001", "1.0.0", WEBHOOK))
    assert (release.chart, release.chart_version, release.status) == ("operator-001", "1.0.0", "deployed")
    files = chart_files(operator_chart("operator-001", "1.0.0", WEBHOOK))
    templates = [json.loads(text) for path, text in files.items() if "/templates/" in path]
    assert list(load_objects(release.manifest.encode(), "the release")) == templates
    assert json.loads(files["operator-001/crds/widgets.yaml"]) == widget_crd("operator-001")


def test_no_text_of_a_template_is_an_action_of_helm() -> None:
    files = chart_files(operator_chart("operator-001", "1.0.0", WEBHOOK))
    assert [path for path, text in files.items() if "{{" in text] == []


def test_no_two_operators_share_a_cluster_scoped_object() -> None:
    assert widget_crd("operator-001")["metadata"] != widget_crd("operator-002")["metadata"]
    one, other = (release_objects(name, "1.0.0", WEBHOOK)[-1] for name in ("operator-001", "operator-002"))
    assert one["metadata"] != other["metadata"]


def test_an_upgrade_replaces_the_pods() -> None:
    one, other = (release_objects("operator-001", version, WEBHOOK)[2] for version in ("1.0.0", "1.1.0"))
    assert one["spec"]["template"] != other["spec"]["template"]
    assert one["spec"]["selector"] == other["spec"]["selector"]
