"""Names and labels: their validation by kind, and generated names."""

from __future__ import annotations

import re
from random import Random

import pytest

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.server import Server
from tests.devcluster.embedded.api import Api


@pytest.mark.parametrize("name", ["a", "a-b", "a.b-c.d", "1", "a" * 253])
def test_a_subdomain_is_a_good_name(name: str):
    assert names.dns1123_subdomain(name) == []


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "a..b", "a/b", "ä"])
def test_an_invalid_subdomain_is_reported(name: str):
    (problem,) = names.dns1123_subdomain(name)
    assert problem.startswith("a lowercase RFC 1123 subdomain must consist of")


def test_a_label_with_dots_is_reported():
    assert names.dns1123_label("a.b") == ["must not contain dots"]


def test_a_long_name_is_reported_with_the_limit():
    assert names.dns1123_subdomain("a" * 254) == ["must be no more than 253 characters"]
    assert names.label_value("a" * 64) == ["must be no more than 63 bytes"]


def test_a_prefix_may_end_in_a_dash():
    assert names.dns1123_subdomain("a-", prefix=True) == []


@pytest.mark.parametrize("key", ["a", "a.b/c", "A_b.c", "example.com/A"])
def test_a_good_label_key(key: str):
    assert names.label_key(key) == []


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("/a", "prefix part must be non-empty"),
        ("a/", "name part must be non-empty"),
        ("a/b/c", "a valid label key must consist of"),
        ("A/b", "prefix part a lowercase RFC 1123 subdomain"),
        ("a" * 64, "name part must be no more than 63 bytes"),
    ],
)
def test_an_invalid_label_key_is_reported_with_the_invalid_part(key: str, problem: str):
    assert names.label_key(key)[0].startswith(problem)


def test_a_path_segment_may_contain_colons_but_no_slashes():
    assert names.path_segment("system:node") == []
    assert names.path_segment("a/b") == ["may not contain '/'"]
    assert names.path_segment("..") == ["may not be '..'"]


def test_a_generated_name_has_five_random_consonants_and_digits():
    generated = names.generate("web-", Random(1))
    assert re.fullmatch(r"web-[bcdfghjklmnpqrstvwxz2456789]{5}", generated)
    assert len(names.generate("x" * 80, Random(1))) == 63


async def test_the_server_generates_names_and_repeats_them_with_a_seed():
    from kapsa.devcluster.embedded.backend import Backend

    made = []
    for _ in range(2):
        api = Api(Server(Backend(seed=7)))
        answer = await api.post(
            "/api/v1/namespaces/default/configmaps", {"metadata": {"generateName": "job-"}}
        )
        made.append((answer.meta["name"], answer.meta["uid"]))
    assert made[0] == made[1]
    assert made[0][0].startswith("job-")


@pytest.mark.parametrize(
    ("path", "name", "status"),
    [
        ("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", "system:x", 201),
        ("/api/v1/namespaces/default/configmaps", "system:x", 422),
        ("/api/v1/namespaces", "a.b", 422),
        ("/api/v1/namespaces/default/configmaps", "a.b", 201),
    ],
)
async def test_each_kind_has_its_own_rule(path: str, name: str, status: int):
    answer = await Api(Server()).post(path, {"metadata": {"name": name}})
    assert answer.status == status
