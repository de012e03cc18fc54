"""Authorization: every route, with every role, on an object of the caller and on one of somebody else.

The tests are generated from the routes of the application. What the seed demands is written down again below, so
that a wrong declaration does not agree with itself.
"""

from __future__ import annotations

import pytest

from kapsa.fleet.domain.principals import Role
from kapsa.fleet.infrastructure.postgres.database import Database
from tests.fleet.api.harness import ApiClient, NoLimits, application, token
from tests.fleet.api.objects import EXCEPTIONS, FleetObjects, Route, create_objects, routes

ROLES = {
    Role.ADMIN: "Admin",
    Role.OPERATOR: "Operator",
    Role.VIEWER: "Viewer",
    Role.ENVIRONMENT_OWNER: "EnvironmentOwner:Production",
}
ROUTES = routes()
GUARDED = [route for route in ROUTES if route.access.authenticated]
OPEN = [route for route in ROUTES if not route.access.authenticated]
REFUSED = (401, 403)
SUCCESS = (200, 201, 202, 204)
REACHED = {
    "registerCluster": (400,),  # the kubeconfig leads nowhere
    "getClusterReleases": (409,),  # so does the cluster
    "adoptRelease": (409,),
    "previewDeployment": (409,),
    "createDeployment": (409,),  # a deployment of the operator is under way there
    "deleteOperator": (409,),  # as its history says
    "getDeploymentPlan": (409,),  # it waits for an approval, and has no plan
    "retryDeployment": (409,),
    "pauseDeployment": (409,),
    "resumeDeployment": (409,),
    "switchDeployment": (409,),
    "rollBackDeployment": (409,),
    "getRollbackStatus": (404,),  # there was no rollback
    "approveCrd": (409,),  # the digest is not that of the findings
}
"""Operations that do not succeed although their objects exist: the state is checked after the rights."""


async def _call(app: object, route: Route, objects: FleetObjects, bearer: str, *, own: bool) -> int:
    client = ApiClient(app, bearer)
    response = await client.request(
        route.method, objects.path(route, own=own), json=objects.body(route, own=own)
    )
    assert response.status_code not in (405, 415, 500, 501), (route, response.text)
    return response.status_code


@pytest.mark.sampled(16)
@pytest.mark.parametrize("route", GUARDED, ids=str)
async def test_a_route_admits_exactly_its_roles(route: Route, database: Database) -> None:
    app = application(database, rate_limits=NoLimits())
    objects = await create_objects(database, caller="cora")
    for own in (True, False):
        for role, text in ROLES.items():
            status = await _call(app, route, objects, token("cora", text), own=own)
            allowed = role in route.access.roles and (route.operation, role, own) not in EXCEPTIONS
            assert (status not in REFUSED) == allowed, (route, role, own, status)
            if allowed:
                assert status in REACHED.get(route.operation, SUCCESS), (route, role, own, status)
            if route.method != "GET" and status not in REFUSED:
                objects = await create_objects(database, caller="cora")
        anonymous = await _call(app, route, objects, "", own=own)
        nobody = await _call(app, route, objects, token("cora", "Emperor"), own=own)
        assert (anonymous, nobody) == (401, 403)


@pytest.mark.parametrize("route", OPEN, ids=str)
async def test_an_open_route_answers_everybody_alike(route: Route, database: Database) -> None:
    app = application(database, rate_limits=NoLimits())
    objects = await create_objects(database, caller="cora")
    bearers = ["", "nonsense", token("cora", "Emperor"), *(token("cora", text) for text in ROLES.values())]
    statuses = {await _call(app, route, objects, bearer, own=True) for bearer in bearers}
    assert len(statuses) == 1


DEMANDED = {
    ("POST", "/api/v1/operators"): {Role.OPERATOR, Role.ADMIN},
    ("POST", "/api/v1/deployments"): {Role.OPERATOR, Role.ADMIN},
    ("POST", "/api/v1/deployments/{deployment_id}/rollback"): {Role.ADMIN},
    ("POST", "/api/v1/approvals/{approval_id}/approve"): {Role.ADMIN, Role.ENVIRONMENT_OWNER},
    ("POST", "/api/v1/approvals/{approval_id}/reject"): {Role.ADMIN, Role.ENVIRONMENT_OWNER},
    ("DELETE", "/api/v1/clusters/{name}"): {Role.ADMIN},
    ("POST", "/api/v1/clusters"): {Role.ADMIN},
    ("POST", "/api/v1/crds/{name}/approve"): {Role.ADMIN},
    ("GET", "/api/v1/audit"): {Role.ADMIN},
}


def test_the_roles_that_the_seed_demands_are_declared() -> None:
    declared = {(route.method, route.path): set(route.access.roles) for route in ROUTES}
    assert {key: declared.get(key) for key in DEMANDED} == DEMANDED


def test_only_health_documents_and_signing_in_need_no_token() -> None:
    open_routes = {route.path for route in ROUTES if not route.access.authenticated}
    assert open_routes == {
        "/health",
        "/livez",
        "/openapi.json",
        "/docs",
        "/auth/login",
        "/auth/callback",
        "/api/v1/session",
    }


def test_a_viewer_can_change_nothing() -> None:
    writes = {
        route.operation
        for route in ROUTES
        if route.method != "GET" and Role.VIEWER in route.access.roles and route.access.authenticated
    }
    assert writes == {"signOut"}
