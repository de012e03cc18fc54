"""Plain manifests read from files."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kapsa.adapters.errors import LimitExceeded, RenderFailed
from kapsa.adapters.manifests.files import read_manifests
from kapsa.adapters.manifests.manifest import Manifest
from tests.adapters.checkouts import WriteCheckout

CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME}\n"


def read(checkout: WriteCheckout, files: Mapping[str, str], path: str = "deploy") -> list[Manifest]:
    root = checkout(files).root
    return read_manifests(root, root / path)


def test_the_files_of_a_directory_are_read_in_the_order_of_their_names(checkout: WriteCheckout) -> None:
    objects = read(
        checkout,
        {
            "deploy/b.yml": CONFIG_MAP.replace("NAME", "two") + "---\n" + CONFIG_MAP.replace("NAME", "three"),
            "deploy/a.yaml": CONFIG_MAP.replace("NAME", "one"),
            "deploy/c.json": '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "four"}}',
            "deploy/README.md": "not a manifest",
            "deploy/below/d.yaml": CONFIG_MAP.replace("NAME", "not-read"),
        },
    )
    assert [each["metadata"]["name"] for each in objects] == ["one", "two", "three", "four"]


def test_one_file_is_enough(checkout: WriteCheckout) -> None:
    objects = read(checkout, {"app.yaml": CONFIG_MAP.replace("NAME", "one")}, "app.yaml")
    assert [each["metadata"]["name"] for each in objects] == ["one"]


def test_more_than_the_limit_is_refused_before_it_is_read(checkout: WriteCheckout) -> None:
    with pytest.raises(LimitExceeded, match="KB"):
        read(checkout, {"deploy/a.yaml": "#" * 9_000_000})
    many = {f"deploy/{number}.yaml": "" for number in range(501)}
    with pytest.raises(LimitExceeded, match="500 manifests"):
        read(checkout, many)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"deploy/README.md": "x"}, "no YAML files in 'deploy'"),
        ({"deploy/a.yaml": "# nothing yet\n"}, "hold no objects"),
    ],
)
def test_a_directory_without_objects_is_reported(
    checkout: WriteCheckout, files: Mapping[str, str], words: str
) -> None:
    with pytest.raises(RenderFailed, match=words) as error:
        read(checkout, files)
    assert error.value.reason == "NoManifests"
