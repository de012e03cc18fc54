"""Access reviews, and the policy that a test can set."""

from __future__ import annotations

from kapsa.devcluster import AccessAttributes, DevCluster, Request, RequestUser
from kapsa.devcluster.embedded.server import Server
from tests.devcluster.embedded.api import CONFIGMAPS, Api

AUTHORIZATION = "/apis/authorization.k8s.io/v1"


async def can(api: Api, **attributes: str) -> bool:
    answer = await api.post(
        f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": attributes}}
    )
    assert answer.status == 201
    return bool(answer.body["status"]["allowed"])


async def test_all_requests_are_allowed_by_default():
    assert await can(Api(Server()), verb="delete", resource="nodes")


async def test_a_policy_decides_requests_and_reviews_alike():
    def read_only(attributes: AccessAttributes) -> bool:
        return attributes.verb in ("get", "list", "watch") or attributes.group == "authorization.k8s.io"

    async with DevCluster(http=False, controllers=False, policy=read_only) as cluster:
        api = Api(cluster.server)
        assert await can(api, verb="get", resource="pods")
        assert not await can(api, verb="create", resource="pods")
        assert (await api.get(CONFIGMAPS)).status == 200
        refused = await api.post(CONFIGMAPS, {"metadata": {"name": "x"}})
        assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
        assert refused.message == (
            'configmaps is forbidden: User "kubernetes-admin" cannot create resource "configmaps" in API group "" '
            'in the namespace "default"'
        )


async def test_a_policy_gets_the_user():
    def only_ada(attributes: AccessAttributes) -> bool:
        return attributes.user.username == "ada"

    async with DevCluster(http=False, controllers=False, policy=only_ada) as cluster:
        for name, status in (("ada", 200), ("eve", 403)):
            request = Request(method="GET", path=CONFIGMAPS, user=RequestUser(username=name))
            assert (await cluster.server.handle(request)).status == status


async def test_a_review_of_another_user_evaluates_the_policy_for_that_user():
    async with DevCluster(
        http=False, controllers=False, policy=lambda attributes: attributes.user.username != "eve"
    ) as cluster:
        api = Api(cluster.server)
        for user, allowed in (("ada", True), ("eve", False)):
            spec = {"user": user, "resourceAttributes": {"verb": "get", "resource": "pods"}}
            answer = await api.post(f"{AUTHORIZATION}/subjectaccessreviews", {"spec": spec})
            assert answer.body["status"]["allowed"] is allowed


async def test_an_empty_review_is_invalid():
    answer = await Api(Server()).post(f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": {}})
    assert answer.status == 422
    assert "exactly one of nonResourceAttributes or resourceAttributes must be specified" in answer.message


async def test_a_self_review_returns_the_user():
    answer = await Api(Server()).post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert answer.body["status"]["userInfo"]["username"] == "kubernetes-admin"


async def test_a_review_without_a_subject_and_without_attributes_lists_both_errors():
    answer = await Api(Server()).post(f"{AUTHORIZATION}/subjectaccessreviews", {"spec": {}})
    assert answer.status == 422
    causes = [cause["field"] for cause in answer.body["details"]["causes"]]
    assert causes == ["spec.resourceAttributes", "spec.user"]


async def test_a_review_has_no_metadata():
    body = {"metadata": {"name": "x"}, "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    answer = await Api(Server()).post(f"{AUTHORIZATION}/selfsubjectaccessreviews", body)
    assert answer.status == 422
    assert "must be empty" in answer.message
