"""The rules of a Registry: prefixes end at a slash, and other spellings of a host do not evade them."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.environments.images.repository_rules import image_refusal, pull_credentials, registry_refusal
from kapsa.environments.resources import Registry, TeamNamespace

SHOP = TeamNamespace("shop")


def registry(endpoint: str = "registry.example.com", **spec: Any) -> Registry:
    auth = {"secretRef": {"name": "push"}}
    return Registry.from_dict(
        {"metadata": {"name": "main"}, "spec": {"endpoint": endpoint, "auth": auth, **spec}}
    )


@pytest.mark.parametrize(
    ("path", "prefixes", "allowed"),
    [
        ("shop/app", None, True),
        ("shop", None, True),
        ("shop/a/b", None, True),
        ("shopping/app", None, False),
        ("bank/shop/app", None, False),
        ("previews/shop/app", ["previews/{namespace}"], True),
        ("previews/bank/app", ["previews/{namespace}"], False),
        ("shop/app", ["previews/{namespace}"], False),
        ("anything/at/all", ["*"], True),
    ],
)
def test_a_prefix_covers_a_repository_and_those_below_it(
    path: str, prefixes: list[str] | None, allowed: bool
) -> None:
    rules = {"repositories": [{"prefixes": prefixes}]} if prefixes else {}
    refusal = registry_refusal(registry(**rules), SHOP, ImageReference("registry.example.com", path))
    assert (refusal == "") == allowed


def test_prefixes_count_from_the_path_of_the_endpoint() -> None:
    gitlab = registry("https://registry.gitlab.com/company")
    assert not registry_refusal(gitlab, SHOP, ImageReference("registry.gitlab.com", "company/shop/app"))
    assert registry_refusal(gitlab, SHOP, ImageReference("registry.gitlab.com", "shop/app"))


def test_the_prefix_of_every_repository_stays_below_the_path_of_the_endpoint() -> None:
    gitlab = registry("https://registry.gitlab.com/company", repositories=[{"prefixes": ["*"]}])
    assert not registry_refusal(gitlab, SHOP, ImageReference("registry.gitlab.com", "company/any/app"))
    assert registry_refusal(gitlab, SHOP, ImageReference("registry.gitlab.com", "rival/app"))
    assert registry_refusal(gitlab, SHOP, ImageReference("registry.gitlab.com", "company-two/app"))
    assert image_refusal([gitlab], SHOP, "registry.gitlab.com/rival/app:1")


@pytest.mark.parametrize(
    ("image", "allowed"),
    [
        ("registry.example.com/shop/app:1", True),
        ("registry.example.com/bank/app:1", False),
        ("REGISTRY.example.com/bank/app", False),
        ("registry.example.com:443/bank/app", False),
        ("registry.example.com:0443/bank/app", False),
        ("registry.example.com./bank/app", False),
        (f"registry.example.com/bank/app@sha384:{'0' * 96}", False),
        (f"nginx@sha384:{'0' * 96}", False),
        (f"registry.example.com/bank/app@sha256:{'0' * 64}", False),
        ("other.example.com/bank/app", True),
        ("nginx:1", True),
    ],
)
def test_an_image_in_a_registry_with_credentials_needs_a_rule_for_the_team(image: str, allowed: bool) -> None:
    assert (image_refusal([registry()], SHOP, image) == "") == allowed


@pytest.mark.parametrize(
    "image", ["bank/app", "docker.io/bank/app", "Index.docker.io/bank/app", "index.docker.io:443/bank/app"]
)
def test_every_name_of_docker_hub_is_that_registry(image: str) -> None:
    assert image_refusal([registry("docker.io")], SHOP, image)


@pytest.mark.parametrize(
    "image", ["registry:5000/bank/app", "registry:05000/bank/app", "REGISTRY:5000/bank/app"]
)
def test_other_spellings_of_a_host_with_a_port_are_that_host(image: str) -> None:
    assert image_refusal([registry("registry:5000")], SHOP, image)
    assert not image_refusal([registry("registry:5001")], SHOP, image)


def test_a_name_that_cannot_be_read_is_refused_only_if_there_are_credentials() -> None:
    # Container runtimes take a first part in capital letters for a host.
    assert "not a valid image name" in image_refusal([registry("registry")], SHOP, "REGISTRY/bank/app")
    assert not image_refusal([registry(auth=None)], SHOP, "REGISTRY/bank/app")


@pytest.mark.parametrize(
    "image",
    [
        f"sha256:{'0' * 64}",
        "sha256:abc",
        f"sha512:{'0' * 128}",
        "sha384:abc",
        f"docker.io/library/sha256:{'0' * 64}",
        "0" * 64,
    ],
)
def test_an_image_by_its_id_is_refused_since_it_may_come_from_any_repository(image: str) -> None:
    assert "is the ID of an image" in image_refusal([registry()], SHOP, image)
    assert image_refusal([registry("docker.io")], SHOP, image)


def test_official_images_of_docker_hub_are_open_to_all() -> None:
    hub = registry("docker.io")
    assert not image_refusal([hub], SHOP, "postgres:16")
    assert image_refusal([hub], SHOP, "bank/app:1")


def test_the_credentials_to_push_are_never_those_to_pull() -> None:
    pull = {"secretRef": {"name": "push"}}
    assert pull_credentials(registry(imagePullSecret=pull), SHOP) is None


def test_of_several_registries_for_one_server_one_that_is_open_suffices() -> None:
    closed = registry(allowedNamespaces={"names": ["bank"]})
    assert image_refusal([closed], SHOP, "registry.example.com/shop/app")
    assert not image_refusal([closed, registry()], SHOP, "registry.example.com/shop/app")


PULL = {"name": "pull", "namespace": "admin"}


@pytest.mark.parametrize(
    "more",
    [
        {"imagePullSecret": {"secretRef": PULL}},
        {"imagePullSecret": {"generatePerNamespace": False}},
        {"repositories": [{"prefixes": ["{namespace}"], "pullSecretRef": PULL}]},
        {"repositories": [{"prefixes": ["{namespace}"]}]},
        {"allowedNamespaces": {"names": ["shop"]}},
    ],
)
def test_the_rules_of_a_registry_without_credentials_to_push_hold(more: dict[str, Any]) -> None:
    private = registry(auth=None, **more)
    assert image_refusal([private], SHOP, "registry.example.com/bank/app:1")
    assert not image_refusal([private], SHOP, "registry.example.com/shop/app:1")
