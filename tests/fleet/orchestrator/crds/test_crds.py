"""CRDs in a real database: stored with every version, compared, judged by live resources, approved."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import insert

from kapsa.fleet.domain.crds import ChangeSeverity
from kapsa.fleet.domain.errors import InvalidInput, NotAllowed, StateConflict, UnknownObject
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.clusters import ClusterCondition, ClusterEnvironment, ClusterHealth
from kapsa.fleet.domain.registry.operators import ChartFacts, ManagedOperator, OperatorVersion, UploadedChart
from kapsa.fleet.infrastructure.postgres.crds.crd_repository import PostgresCrds
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.infrastructure.postgres.tables.registry import cluster, cluster_inventory
from kapsa.fleet.orchestrator.crds.cluster_changes import crd_change
from kapsa.fleet.orchestrator.crds.requests import ApproveCrd, StoreCrd, ValidateCrd
from kapsa.fleet.orchestrator.crds.use_cases import MOST_CRDS, Crds
from kapsa.fleet.orchestrator.ports.charts import ChartCrd
from kapsa.fleet.orchestrator.ports.crds import ResourcesUnreadable
from tests.fleet.audit_recorder import AuditRecorder
from tests.fleet.domain.crds.resources import Raw, comparison, crd, object_of, resource, version
from tests.fleet.examples import ADMIN, DEPLOYER, OTHER_ADMIN, OWNER, cluster_id, environment_of

VIEWER = Principal("vera", frozenset({Role.VIEWER}))
NAME = "widgets.example.com"
OTHER = {"names": {"plural": "gadgets", "kind": "Gadget", "singular": "gadget", "listKind": "GadgetList"}}


def sized(**facets: Any) -> Raw:
    return crd(version("v1", resource(object_of({"size": {"type": "integer", **facets}}))))


def gadget() -> Raw:
    return {**crd(**OTHER), "metadata": {"name": "gadgets.example.com"}}


class FakeResources:
    """Clusters with a CRD and resources; those without an entry cannot be read."""

    def __init__(self) -> None:
        self.definitions: dict[uuid.UUID, Raw | None] = {}
        self.resources: dict[uuid.UUID, list[Raw]] = {}

    async def definition(self, cluster_id: uuid.UUID, name: str) -> Mapping[str, Any] | None:
        if cluster_id not in self.definitions:
            raise ResourcesUnreadable("the cluster does not answer")
        return self.definitions[cluster_id]

    async def pages(self, cluster_id: uuid.UUID, crd: Mapping[str, Any]) -> AsyncIterator[list[Raw]]:
        yield self.resources.get(cluster_id, [])


class Registry:
    """An operator with versions and clusters, and the use cases on top."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.live = FakeResources()
        self.audit = AuditRecorder()
        self.operators = PostgresOperators()
        self.crds = Crds(database, PostgresCrds(), self.operators, self.live, self.audit)

    async def add_operator(self, name: str = "widgeteer") -> ManagedOperator:
        operator = ManagedOperator(
            uuid.uuid4(), name, "system", UploadedChart(name), {}, {}, await self.database.now(), "dora"
        )
        async with self.database.transaction() as connection:
            assert await self.operators.insert(connection, operator)
        return operator

    async def add_version(
        self, operator: ManagedOperator, number: str, *definitions: Raw, guide: str = ""
    ) -> None:
        digest = f"sha256:{hashlib.sha256(f'{operator.name}{number}'.encode()).hexdigest()}"
        added = OperatorVersion(
            operator.id,
            number,
            digest,
            ChartFacts(),
            await self.database.now(),
            "dora",
            migration_guide=guide,
        )
        crds = [ChartCrd(each["metadata"]["name"], "crds", each) for each in definitions]
        async with self.database.transaction() as connection:
            assert await self.operators.insert_version(connection, added, digest.encode(), crds)

    async def add_cluster(
        self, name: str, *, kubernetes: str = "v1.32.0", stored: tuple[str, ...] = ("v1",)
    ) -> None:
        health = ClusterHealth(ClusterCondition.HEALTHY, kubernetes_version=kubernetes)
        now = await self.database.now()
        entry = {
            "name": NAME,
            "kind": "Widget",
            "scope": "Namespaced",
            "versions": ["v1"],
            "storageVersion": "v1",
            "storedVersions": list(stored),
            "manager": {"name": "Flux", "owner": "Kustomization a/b"},
        }
        async with self.database.transaction() as connection:
            row = {
                "id": cluster_id(name),
                "name": name,
                "environment": environment_of(name).value,
                "labels": {},
                "server": "https://example.com",
                "health": msgspec.to_builtins(health),
                "windows": [],
                "freezes": [],
                "created_by": "ada",
                "version": 1,
            }
            await connection.execute(insert(cluster).values(row))
            content = {
                "takenAt": now.isoformat(),
                "releases": [],
                "crds": [entry, {**entry, "name": "other.example.com"}],
            }
            await connection.execute(
                insert(cluster_inventory).values(cluster_id=cluster_id(name), taken_at=now, content=content)
            )


@pytest.fixture
def registry(database: Database) -> Registry:
    return Registry(database)


def widget(name: str, size: int) -> Raw:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"size": size},
    }


async def test_the_crds_of_charts_are_listed_page_by_page(registry: Registry) -> None:
    one, two = await registry.add_operator("alpha"), await registry.add_operator("beta")
    await registry.add_version(one, "1.0.0", crd())
    await registry.add_version(one, "1.10.0", crd(), gadget())
    await registry.add_version(one, "1.9.0", crd())
    await registry.add_version(two, "3.0.0", crd())
    first = await registry.crds.page(VIEWER, limit=2)
    assert [(each.name, each.operator, each.newest_version, each.revisions) for each in first.items] == [
        ("gadgets.example.com", "alpha", "1.10.0", 1),
        (NAME, "alpha", "1.10.0", 3),
    ]
    assert (first.items[1].group, first.items[1].kind, first.items[1].scope) == (
        "example.com",
        "Widget",
        "Namespaced",
    )
    rest = await registry.crds.page(VIEWER, limit=2, cursor=first.next_cursor)
    assert [(each.name, each.operator) for each in rest.items] == [(NAME, "beta")]
    assert rest.next_cursor == ""
    assert len((await registry.crds.page(VIEWER, operator="beta")).items) == 1
    assert len((await registry.crds.page(VIEWER, prefix="gad")).items) == 1
    assert (await registry.crds.page(VIEWER, prefix="%")).items == ()


async def test_a_crd_has_its_history_and_its_state_on_every_cluster(registry: Registry) -> None:
    operator = await registry.add_operator()
    await registry.add_version(operator, "1.0.0", crd())
    await registry.add_version(operator, "1.1.0", crd(), guide="nothing to do")
    await registry.add_version(operator, "2.0.0", sized(maximum=5))
    await registry.add_cluster("prod-eu", stored=("v1beta1", "v1"))
    await registry.add_cluster("dev-1")
    detail = await registry.crds.get(VIEWER, NAME)
    assert [each.version for each in detail.revisions] == ["2.0.0", "1.1.0", "1.0.0"]
    assert detail.revisions[1].digest == detail.revisions[2].digest != detail.revisions[0].digest
    assert detail.revisions[1].migration_guide == "nothing to do"
    assert [each.cluster for each in detail.clusters] == ["dev-1", "prod-eu"]
    eu = detail.clusters[1]
    assert eu.environment is ClusterEnvironment.PRODUCTION
    assert (eu.kubernetes_version, eu.stored_versions) == ("v1.32.0", ("v1beta1", "v1"))
    assert eu.managed_by == "Flux (Kustomization a/b)"


async def test_a_crd_can_be_stored_by_itself_once(registry: Registry) -> None:
    operator = await registry.add_operator()
    await registry.add_version(operator, "1.0.0")
    request = StoreCrd("widgeteer", "1.0.0", sized())
    stored = await registry.crds.store(DEPLOYER, request)
    assert (stored.location, stored.created_by) == ("upload", "dora")
    assert await registry.crds.store(OTHER_ADMIN, request) == stored
    assert registry.audit.actions() == ["crd.store"]
    with pytest.raises(StateConflict, match=r"has another widgets\.example\.com"):
        await registry.crds.store(DEPLOYER, StoreCrd("widgeteer", "1.0.0", sized(maximum=5)))


async def test_a_version_has_a_bounded_number_of_crds(registry: Registry) -> None:
    operator = await registry.add_operator()
    many = [{**crd(), "metadata": {"name": f"w{index}.example.com"}} for index in range(MOST_CRDS)]
    await registry.add_version(operator, "1.0.0", *many)
    with pytest.raises(StateConflict, match="50 CRDs already"):
        await registry.crds.store(DEPLOYER, StoreCrd("widgeteer", "1.0.0", crd()))
    listed = await registry.crds.page(VIEWER, limit=200)
    assert len(listed.items) == MOST_CRDS
    assert registry.audit.actions() == []


async def test_the_same_document_again_changes_nothing_in_a_version_that_is_full(registry: Registry) -> None:
    operator = await registry.add_operator()
    others = [{**crd(), "metadata": {"name": f"w{index}.example.com"}} for index in range(MOST_CRDS - 1)]
    await registry.add_version(operator, "1.0.0", *others)
    request = StoreCrd("widgeteer", "1.0.0", crd())
    stored = await registry.crds.store(DEPLOYER, request)
    assert await registry.crds.store(DEPLOYER, request) == stored
    assert registry.audit.actions() == ["crd.store"]


async def test_a_crd_can_be_stored_with_a_version_that_two_hundred_newer_ones_follow(
    registry: Registry,
) -> None:
    operator = await registry.add_operator()
    await registry.add_version(operator, "0.1.0")
    for minor in range(200):
        await registry.add_version(operator, f"1.{minor}.0", crd())
    stored = await registry.crds.store(DEPLOYER, StoreCrd("widgeteer", "0.1.0", crd()))
    assert (stored.version, stored.name, stored.location) == ("0.1.0", NAME, "upload")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "Deployment"}, "must be CustomResourceDefinition"),
        ({"metadata": {"name": "other.example.com"}}, r"must be widgets\.example\.com"),
        ({"spec": {}}, "malformed"),
        ({"spec": {**crd()["spec"], "versions": [version(), version("v2")]}}, "exactly one version"),
        ({"spec": {**crd()["spec"], "versions": [{"name": "v1", "storage": True}]}}, "is required"),
        (
            {"spec": {**crd()["spec"], "versions": [version("v1", resource({"properties": {}}))]}},
            "would refuse",
        ),
        ({"extra": "x" * 1_600_000}, "the limit is 1536 KB"),
    ],
)
async def test_a_document_that_an_api_server_would_refuse_is_not_stored(
    registry: Registry, change: Raw, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        await registry.crds.store(DEPLOYER, StoreCrd("widgeteer", "1.0.0", {**crd(), **change}))
    assert caught.value.fields


async def test_validation_compares_with_the_version_before_and_gives_the_guides_on_the_way(
    registry: Registry,
) -> None:
    operator = await registry.add_operator()
    await registry.add_version(operator, "1.0.0", sized())
    await registry.add_version(operator, "1.1.0", gadget(), guide="without the CRD")
    await registry.add_version(operator, "1.2.0", sized(minimum=0), guide="sizes are not negative")
    await registry.add_version(operator, "2.0.0", sized(minimum=0, maximum=9), guide="sizes are small")
    newest = await registry.crds.validate(DEPLOYER, NAME, ValidateCrd("widgeteer"))
    assert (newest.from_version, newest.version) == ("1.2.0", "2.0.0")
    assert [finding.headline for finding in newest.findings] == ["breaking bound-tightened v1:spec.size"]
    assert [guide.text for guide in newest.guides] == ["sizes are small"]
    whole = await registry.crds.validate(OWNER, NAME, ValidateCrd("widgeteer", "2.0.0", "1.0.0"))
    assert whole.summary.breaking == 2
    assert [guide.version for guide in whole.guides] == ["1.2.0", "2.0.0"]
    first = await registry.crds.validate(ADMIN, NAME, ValidateCrd("widgeteer", "1.0.0"))
    assert (first.from_version, first.severity, first.findings) == ("", ChangeSeverity.SAFE, ())


async def test_validation_judges_the_resources_of_each_cluster(registry: Registry) -> None:
    operator = await registry.add_operator()
    await registry.add_version(operator, "1.0.0", sized())
    await registry.add_version(operator, "2.0.0", sized(maximum=9))
    for name, kubernetes in (
        ("dev-1", "v1.36.0"),
        ("prod-eu", "v1.32.1"),
        ("prod-us", "v1.32.1"),
        ("staging-1", "v1.33.0"),
    ):
        await registry.add_cluster(name, kubernetes=kubernetes)
    for name in ("dev-1", "prod-eu"):
        registry.live.definitions[cluster_id(name)] = {**sized(), "status": {"storedVersions": ["v1"]}}
        registry.live.resources[cluster_id(name)] = [widget("a", 1), widget("b", 10)]
    registry.live.definitions[cluster_id("staging-1")] = None
    result = await registry.crds.validate(DEPLOYER, NAME, ValidateCrd("widgeteer"))
    assert {each.cluster: (each.severity, each.line) for each in result.clusters} == {
        "dev-1": (ChangeSeverity.WARNING, "1 of 2 in dev-1 would be rejected"),
        "prod-eu": (ChangeSeverity.BREAKING, "1 of 2 in prod-eu would be rejected"),
        "prod-us": (None, "prod-us could not be read: the cluster does not answer"),
        "staging-1": (None, "staging-1 does not have the CRD any more"),
    }
    chosen = await registry.crds.validate(DEPLOYER, NAME, ValidateCrd("widgeteer", clusters=("prod-eu",)))
    assert [each.cluster for each in chosen.clusters] == ["prod-eu"]
    with pytest.raises(InvalidInput, match="'mars', which does not have the CRD"):
        await registry.crds.validate(DEPLOYER, NAME, ValidateCrd("widgeteer", clusters=("mars",)))


async def test_an_approval_counts_for_exactly_the_findings_that_were_read(registry: Registry) -> None:
    operator = await registry.add_operator()
    await registry.add_version(operator, "1.0.0", sized())
    await registry.add_version(operator, "2.0.0", sized(maximum=9))
    validation = await registry.crds.validate(ADMIN, NAME, ValidateCrd("widgeteer"))
    with pytest.raises(StateConflict, match="validate the CRD again"):
        await registry.crds.approve(ADMIN, NAME, ApproveCrd("widgeteer", "2.0.0", "sha256:other"))
    request = ApproveCrd("widgeteer", "2.0.0", validation.digest, comment="checked with the teams")
    approval = await registry.crds.approve(ADMIN, NAME, request)
    assert (approval.approved_by, approval.from_version) == ("ada", "1.0.0")
    registry.database.set_clock(await registry.database.now() + timedelta(hours=1))
    assert await registry.crds.approve(OTHER_ADMIN, NAME, request) == approval
    assert registry.audit.actions() == ["crd.approve"]
    assert (await registry.crds.validate(ADMIN, NAME, ValidateCrd("widgeteer"))).approval == approval
    assert (await registry.crds.get(VIEWER, NAME)).approvals == (approval,)


async def test_nobody_approves_a_crd_that_they_stored_and_safe_changes_need_no_approval(
    registry: Registry,
) -> None:
    operator = await registry.add_operator()
    await registry.add_version(operator, "1.0.0", sized(maximum=9))
    await registry.add_version(operator, "2.0.0", sized())
    await registry.add_version(operator, "3.0.0")
    await registry.crds.store(ADMIN, StoreCrd("widgeteer", "3.0.0", sized(maximum=5)))
    relaxed = await registry.crds.validate(ADMIN, NAME, ValidateCrd("widgeteer", "2.0.0"))
    with pytest.raises(StateConflict, match="needs no approval"):
        await registry.crds.approve(ADMIN, NAME, ApproveCrd("widgeteer", "2.0.0", relaxed.digest))
    tightened = await registry.crds.validate(ADMIN, NAME, ValidateCrd("widgeteer"))
    with pytest.raises(NotAllowed, match="that they stored"):
        await registry.crds.approve(ADMIN, NAME, ApproveCrd("widgeteer", "3.0.0", tightened.digest))
    assert await registry.crds.approve(OTHER_ADMIN, NAME, ApproveCrd("widgeteer", "3.0.0", tightened.digest))


async def test_roles_decide_who_may_do_what(registry: Registry) -> None:
    nobody = Principal("nina", frozenset())
    for call in (
        registry.crds.page(nobody),
        registry.crds.get(nobody, NAME),
        registry.crds.store(VIEWER, StoreCrd("a", "1.0.0", crd())),
        registry.crds.store(OWNER, StoreCrd("a", "1.0.0", crd())),
        registry.crds.validate(VIEWER, NAME, ValidateCrd("a")),
        registry.crds.approve(DEPLOYER, NAME, ApproveCrd("a", "1.0.0", "d")),
        registry.crds.approve(OWNER, NAME, ApproveCrd("a", "1.0.0", "d")),
    ):
        with pytest.raises(NotAllowed):
            await call


async def test_what_does_not_exist_is_named(registry: Registry) -> None:
    operator = await registry.add_operator()
    await registry.add_version(operator, "1.0.0", crd())
    for call, message in (
        (registry.crds.get(VIEWER, "nothing.example.com"), "no CRD 'nothing"),
        (registry.crds.get(VIEWER, NAME, operator="other"), "of operator 'other'"),
        (registry.crds.validate(ADMIN, NAME, ValidateCrd("widgeteer", "9.0.0")), "'9.0.0' does not have"),
        (registry.crds.store(ADMIN, StoreCrd("nobody", "1.0.0", crd())), "no operator 'nobody'"),
        (registry.crds.store(ADMIN, StoreCrd("widgeteer", "9.0.0", crd())), "no version '9.0.0'"),
    ):
        with pytest.raises(UnknownObject, match=message):
            await call
    with pytest.raises(InvalidInput, match="operator is required"):
        await registry.crds.validate(ADMIN, NAME, ValidateCrd(""))
    with pytest.raises(InvalidInput, match="comment must have"):
        await registry.crds.approve(ADMIN, NAME, ApproveCrd("widgeteer", "1.0.0", "d", comment="x" * 3_000))


async def test_an_operator_takes_its_uploads_and_approvals_with_it(registry: Registry) -> None:
    operator = await registry.add_operator()
    await registry.add_version(operator, "1.0.0", sized())
    await registry.add_version(operator, "2.0.0")
    await registry.crds.store(DEPLOYER, StoreCrd("widgeteer", "2.0.0", sized(maximum=5)))
    digest = (await registry.crds.validate(ADMIN, NAME, ValidateCrd("widgeteer"))).digest
    await registry.crds.approve(ADMIN, NAME, ApproveCrd("widgeteer", "2.0.0", digest))
    async with registry.database.transaction() as connection:
        assert await registry.operators.delete(connection, operator.id)
    assert (await registry.crds.page(VIEWER)).items == ()


def test_a_plan_shows_and_hashes_the_headlines_of_a_comparison() -> None:
    change = crd_change(comparison(sized(), crd(version("v1", resource(object_of({}))))))
    assert (change.name, change.severity, change.one_way) == (NAME, "breaking", True)
    assert change.findings == ("breaking field-removed v1:spec.size",)
