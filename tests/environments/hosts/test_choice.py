"""The choice of an environment's host from the pools."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kapsa.adapters.errors import ExternalError
from kapsa.environments.hosts.choice import BUILT_IN, DEFAULT_POOL, HostRequest, choose, shared_domains
from kapsa.environments.resources import DomainPool, Environment, Project, TeamNamespace


def pool(
    name: str = "main",
    *domains: str,
    age: int = 0,
    held: dict[str, str] | None = None,
    deleting: bool = False,
    **spec: Any,
) -> DomainPool:
    """Return a pool with its status; `held` maps hosts to UIDs."""
    created = datetime(2026, 1, 1, tzinfo=UTC) - timedelta(days=age)
    allocations = [
        {"host": host, "environment": f"team-app/{uid}", "uid": uid} for host, uid in (held or {}).items()
    ]
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": created.isoformat()}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    return DomainPool.from_dict(
        {
            "metadata": metadata,
            "spec": {"baseDomains": list(domains or ("example.com",)), **spec},
            "status": {"allocations": allocations},
        }
    )


def request(uid: str = "me", **more: Any) -> HostRequest:
    return HostRequest(
        uid=uid,
        environment="team-app/pr-1",
        **{"labels": ("pr-1", "pr-1-app", "pr-1-app-team"), "team": TeamNamespace("team"), **more},
    )


def chosen(pools: list[DomainPool], host_request: HostRequest, seed: int = 0) -> str:
    return choose(pools, host_request, random.Random(seed)).host


def test_the_first_name_that_is_free_is_taken() -> None:
    assert chosen([pool()], request()) == "pr-1.example.com"
    held = {"pr-1.example.com": "a"}
    assert chosen([pool(held=held)], request()) == "pr-1-app.example.com"
    held |= {"pr-1-app.example.com": "b", "pr-1-app-team.example.com": "c"}
    last = chosen([pool(held=held)], request())
    assert last.startswith("pr-1-app-team-")
    assert last != chosen([pool(held=held)], request("another"))


def test_a_host_of_another_pool_with_the_same_domain_is_taken_too() -> None:
    junior = pool("junior", "example.com", "b.com", held={"pr-1.example.com": "a"})
    assert chosen([junior, pool("senior", "example.com", age=1)], request()) == "pr-1-app.example.com"


def test_reserved_names_are_given_to_nobody() -> None:
    policy: dict[str, Any] = {"allocationPolicy": {"reservedSubdomains": ["www", "pr-1"]}}
    assert chosen([pool(**policy)], request()) == "pr-1-app.example.com"
    for host in ("www.example.com", "deep.www.example.com"):
        with pytest.raises(ExternalError, match="is reserved") as refused:
            chosen([pool(**policy)], request(host=host))
        assert refused.value.reason == "HostReserved"
    assert chosen([pool(**policy)], request(host="www.deep.example.com")) == "www.deep.example.com"


def test_a_host_that_is_asked_for_is_given_or_refused_with_its_holder() -> None:
    pools = [pool(held={"shop.example.com": "other"})]
    assert chosen(pools, request(host="mine.example.com")) == "mine.example.com"
    with pytest.raises(
        ExternalError, match=r"shop\.example\.com is taken by environment team-app/other"
    ) as refused:
        chosen(pools, request(host="shop.example.com"))
    assert refused.value.reason == "HostTaken"


@pytest.mark.parametrize(
    ("held", "requested"),
    [("shop.example.com", "login.shop.example.com"), ("login.shop.example.com", "shop.example.com")],
)
def test_a_host_above_or_below_that_of_another_team_is_refused(held: str, requested: str) -> None:
    pools = [pool(held={held: "theirs"})]
    with pytest.raises(ExternalError, match=rf"{requested} is above or below {held}") as refused:
        chosen(pools, request(host=requested))
    assert refused.value.reason == "HostTaken"
    same_team = request(host=requested, team=TeamNamespace("team-app"))
    assert chosen(pools, same_team) == requested


def test_a_generated_host_is_not_above_that_of_another_team() -> None:
    assert chosen([pool(held={"x.pr-1.example.com": "theirs"})], request()) == "pr-1-app.example.com"


def test_a_domain_of_a_pool_may_be_below_a_host_of_another_team() -> None:
    outer = pool(age=1, held={"shop.example.com": "theirs"})
    assert (
        chosen([outer, pool("inner", "shop.example.com")], request(pool="inner")) == "pr-1.shop.example.com"
    )
    inner = pool("inner", "shop.example.com", held={"x.shop.example.com": "theirs"})
    assert chosen([pool(), inner], request(host="y.shop.example.com")) == "y.shop.example.com"


@pytest.mark.parametrize("host", ["example.com", "shop.example.org", "badexample.com", "b.example.com"])
def test_a_host_outside_the_pools_is_refused(host: str) -> None:
    pools = [pool(), pool("nested", "b.example.com")]
    with pytest.raises(ExternalError, match="not under any domain available") as refused:
        chosen(pools, request(host=host))
    assert refused.value.reason == "HostOutsidePools"


def test_a_domain_inside_another_pools_domain_is_never_given_out_as_a_host() -> None:
    pools = [pool(age=1), pool("nested", "pr-1.example.com")]
    assert chosen(pools, request()) == "pr-1-app.example.com"
    assert choose(pools, request(host="x.pr-1.example.com"), random.Random(0)).pool.name == "nested"


def test_a_pool_that_is_named_is_used_and_one_that_is_missing_is_reported() -> None:
    pools = [pool(age=1), pool("other", "other.org")]
    assert chosen(pools, request(pool="other")) == "pr-1.other.org"
    with pytest.raises(ExternalError, match="DomainPool third does not exist") as refused:
        chosen(pools, request(pool="third"))
    assert refused.value.reason == "DomainPoolNotFound"
    with pytest.raises(ExternalError, match="not under any domain available"):
        chosen(pools, request(pool="other", host="x.example.com"))


def test_the_default_is_the_marked_pool_else_the_oldest_and_the_built_in_one_last() -> None:
    built_in = pool(BUILT_IN, "built.in", age=9)
    pools = [built_in, pool("young", "young.org"), pool("old", "old.org", age=5)]
    assert chosen(pools, request()) == "pr-1.old.org"
    marked = DomainPool.from_dict(
        {
            **pools[1].to_dict(),
            "metadata": {"name": "young", "uid": "u", "annotations": {DEFAULT_POOL: "true"}},
        }
    )
    assert chosen([built_in, marked, pools[2]], request()) == "pr-1.young.org"
    assert chosen([built_in], request()) == "pr-1.built.in"


def test_a_pool_without_a_domain_of_its_own_gives_out_nothing() -> None:
    with pytest.raises(ExternalError, match="shares every domain with an older pool") as refused:
        chosen([pool(age=1), pool("copy")], request(pool="copy"))
    assert refused.value.reason == "DomainTaken"


def spread(strategy: str, count: int) -> Counter[str]:
    """Return the number of hosts that each domain gets."""
    held: dict[str, str] = {"old.a.org": "x"}
    last, counts = None, Counter[str]()
    for number in range(count):
        made = pool("main", "a.org", "b.org", "c.org", held=held, allocationPolicy={"strategy": strategy})
        made = DomainPool.from_dict(
            {**made.to_dict(), "status": {**made.to_dict()["status"], "lastDomain": last}}
        )
        choice = choose([made], request(f"u{number}", labels=(f"e{number}",)), random.Random(number))
        held[choice.host] = f"u{number}"
        last = choice.domain
        counts[choice.domain] += 1
    return counts


def test_round_robin_takes_turns() -> None:
    assert spread("round-robin", 7) == {"a.org": 3, "b.org": 2, "c.org": 2}


def test_least_used_fills_up_the_emptiest() -> None:
    assert spread("least-used", 8) == {"a.org": 2, "b.org": 3, "c.org": 3}


def test_random_reaches_every_domain() -> None:
    assert set(spread("random", 30)) == {"a.org", "b.org", "c.org"}


def test_a_name_of_any_length_makes_a_host() -> None:
    environment = Environment.from_dict(
        {
            "metadata": {"name": "x" * 63, "namespace": "team-app", "uid": "u"},
            "spec": {"projectRef": {"name": "app"}, "source": {"commitSha": "a" * 40}},
        }
    )
    project = Project.from_dict(
        {
            "metadata": {"name": "a" * 63, "namespace": "team"},
            "spec": {
                "source": {"repositoryUrl": "https://example.com/x"},
                "deployment": {"type": "image"},
            },
        }
    )
    host = chosen([pool()], HostRequest.of(environment, project, TeamNamespace("team")))
    assert all(len(label) <= 63 for label in host.split("."))


def test_a_pool_that_is_being_deleted_gives_out_no_hosts_and_its_domains_to_another() -> None:
    old, new = pool("old", age=5, held={"pr-1.example.com": "a"}, deleting=True), pool("new")
    assert choose([old, new], request(), random.Random(0)).pool.name == "new"
    assert chosen([old, new], request()) == "pr-1-app.example.com"
    assert shared_domains(new, [old, new]) == ""
    for pools, host_request in (([old, new], request(pool="old")), ([old], request())):
        with pytest.raises(ExternalError, match="being deleted") as refused:
            choose(pools, host_request, random.Random(0))
        assert refused.value.reason == "DomainPoolTerminating"
    with pytest.raises(ExternalError, match=r"pr-1\.example\.com is taken"):
        choose([old, new], request(host="pr-1.example.com"), random.Random(0))


# -- teams ---------------------------------------------------------------------------------------------------


def refusal(pools: list[DomainPool], **more: Any) -> str:
    with pytest.raises(ExternalError) as error:
        chosen(pools, request(**more))
    return error.value.reason


def test_a_pool_allocates_hosts_only_to_the_namespaces_it_is_open_to() -> None:
    named = pool(allowedNamespaces={"names": ["shop"]})
    assert refusal([named]) == "DomainPoolNotAllowed"
    assert refusal([named], pool="main") == "DomainPoolNotAllowed"
    assert refusal([named], host="x.example.com") == "DomainPoolNotAllowed"
    assert chosen([named], request(team=TeamNamespace("shop"))) == "pr-1.example.com"


def test_a_pool_that_is_closed_to_a_team_leaves_it_the_others() -> None:
    closed = pool("closed", "a.com", age=9, allowedNamespaces={"names": ["shop"]})
    assert chosen([closed, pool("open", "b.com")], request()) == "pr-1.b.com"
    assert refusal([closed, pool("open", "b.com")], host="x.a.com") == "HostOutsidePools"


@pytest.mark.parametrize(
    ("selector", "labels", "opened"),
    [
        ({"matchLabels": {"tier": "gold"}}, {"tier": "gold"}, True),
        ({"matchLabels": {"tier": "gold"}}, {"tier": "tin"}, False),
        (
            {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold"]}]},
            {"tier": "gold"},
            True,
        ),
        (
            {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold"]}]},
            {"tier": "gold"},
            False,
        ),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, {}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, {}, True),
        ({}, {}, True),
    ],
)
def test_a_pool_is_open_to_namespaces_with_certain_labels(
    selector: dict[str, Any], labels: dict[str, str], opened: bool
) -> None:
    team = TeamNamespace("team", labels)
    pools = [pool(allowedNamespaces={"selector": selector})]
    assert (chosen(pools, request(team=team)) if opened else refusal(pools, team=team)) == (
        "pr-1.example.com" if opened else "DomainPoolNotAllowed"
    )


SHOP = {"subdomains": [{"namespaces": {"names": ["shop"]}, "labels": ["shop", "*-shop"]}]}


def test_labels_of_one_team_are_refused_to_all_others() -> None:
    pools = [pool(allocationPolicy=SHOP)]
    for host in ("shop.example.com", "pr-1-shop.example.com", "deep.shop.example.com"):
        assert refusal(pools, host=host) == "HostNotAllowed"
    assert chosen(pools, request(labels=("shop", "shopping"))) == "shopping.example.com"


def test_a_team_with_labels_of_its_own_gets_no_others() -> None:
    pools, shop = [pool(allocationPolicy=SHOP)], TeamNamespace("shop")
    assert chosen(pools, request(team=shop, host="shop.example.com")) == "shop.example.com"
    assert refusal(pools, team=shop, host="bank.example.com") == "HostNotAllowed"
    assert chosen(pools, request(team=shop)) == "shop.example.com", "its patterns are tried in their order"
    assert chosen([pool(allocationPolicy=SHOP, held={"shop.example.com": "a"})], request(team=shop)) == (
        "pr-1-shop.example.com"
    )


# -- the hosts of PreviewEnvironments --------------------------------------------------------------------------


def test_hosts_of_pull_requests_under_the_domain_of_previews_are_for_previews_before_any_pool_holds_them() -> (
    None
):
    def made(host_request: HostRequest, preview_domain: str = "example.com") -> str:
        return choose([pool()], host_request, random.Random(0), preview_domain=preview_domain).host

    assert made(request()) == "pr-1-app.example.com"
    assert made(request(), "another.com") == "pr-1.example.com"
    assert made(request(host="pr-1.x.example.com")) == "pr-1.x.example.com"
    preview = request(kind="PreviewEnvironment", host="pr-1.example.com")
    assert made(preview) == "pr-1.example.com"
    for host in ("pr-1.example.com", "x.pr-1.example.com"):
        with pytest.raises(ExternalError, match="is reserved for the PreviewEnvironment"):
            made(request(host=host))
