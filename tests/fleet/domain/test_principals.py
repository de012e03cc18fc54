"""Principals: roles, and the environments that an owner owns."""

from __future__ import annotations

from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from tests.fleet.examples import ADMIN, OWNER


def test_a_role_is_one_of_the_principals_own() -> None:
    assert ADMIN.has(Role.VIEWER, Role.ADMIN)
    assert not OWNER.has(Role.VIEWER, Role.ADMIN)


def test_an_admin_decides_everywhere_and_an_owner_at_home() -> None:
    assert all(ADMIN.owns(each) for each in ClusterEnvironment)
    assert [each for each in ClusterEnvironment if OWNER.owns(each)] == [ClusterEnvironment.PRODUCTION]


def test_owned_environments_count_for_owners_alone() -> None:
    viewer = Principal("v", frozenset({Role.VIEWER}), frozenset(ClusterEnvironment))
    assert not any(viewer.owns(each) for each in ClusterEnvironment)


def test_environments_are_ranked_dev_staging_production() -> None:
    assert [each.rank for each in ClusterEnvironment] == [0, 1, 2]
