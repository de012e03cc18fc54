"""A second version rolled out in the documented order: the CRD of `kapsa crd`, then the operator."""

import asyncio
import contextlib
from typing import Any

import pytest

from kapsa.devcluster import DevCluster
from kapsa.runtime import (
    Client,
    Context,
    Controller,
    Converter,
    CustomResource,
    ObjectMeta,
    Operator,
    SchemaError,
    Spec,
    Status,
    Webhooks,
    custom_resource_definitions,
    errors,
)

CRD = "apiextensions.k8s.io/v1/CustomResourceDefinition"


class JobSpec(Spec):
    cron: str = ""


class Job(CustomResource[JobSpec, Status], group="upgrade.example.com", version="v1", storage=True, hub=True):
    """A job in its first version, which stays the stored one during the upgrade."""


class Schedule(Spec):
    minute: str = "*"
    hour: str = "*"


class NewJobSpec(Spec):
    schedule: Schedule = Schedule()


class NewJob(CustomResource[NewJobSpec, Status], group="upgrade.example.com", version="v2", kind="Job"):
    """A job in its second version."""


class NewJobConverter(Converter[NewJob, Job]):
    def to_hub(self, resource: NewJob) -> Job:
        schedule = resource.spec.schedule
        return Job(metadata=resource.metadata, spec=JobSpec(cron=f"{schedule.minute} {schedule.hour}"))

    def from_hub(self, resource: Job) -> NewJob:
        minute, _, hour = resource.spec.cron.partition(" ")
        return NewJob(
            metadata=resource.metadata, spec=NewJobSpec(schedule=Schedule(minute=minute, hour=hour))
        )


class JobController(Controller[Job]):
    async def reconcile(self, resource: Job, ctx: Context[Job], /) -> None:
        return None


def operator(port: int, *converters: Converter[Any, Any]) -> Operator:
    webhooks = Webhooks(
        converters=converters, host="127.0.0.1", port=port, url=f"https://127.0.0.1:{port}", check_every=1
    )
    return Operator(
        controllers=[JobController()], name="jobs", webhooks=webhooks, metrics_port=None, health_port=None
    )


def new_job(name: str) -> NewJob:
    return NewJob(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=NewJobSpec(schedule=Schedule(minute="5", hour="4")),
    )


def test_the_definitions_of_an_operator_have_every_converted_version_and_the_webhook() -> None:
    (crd,) = operator(9443, NewJobConverter()).definitions(namespace="jobs-system")
    assert [version["name"] for version in crd["spec"]["versions"]] == ["v2", "v1"]
    assert crd["spec"]["conversion"]["strategy"] == "Webhook"
    in_cluster = Operator(
        controllers=[JobController()],
        name="jobs",
        webhooks=Webhooks(converters=[NewJobConverter()], service="jobs-webhooks"),
    )
    (crd,) = in_cluster.definitions()
    service = crd["spec"]["conversion"]["webhook"]["clientConfig"]["service"]
    assert service == {"namespace": "jobs-system", "name": "jobs-webhooks", "path": "/convert", "port": 443}


def test_versions_that_differ_and_have_no_converter_are_refused_with_the_remedy() -> None:
    with pytest.raises(SchemaError, match=r"versions v2, v1 have different fields .* Write a Converter"):
        operator(9443).definitions(also=[NewJob])


async def test_a_new_version_written_before_its_operator_runs_is_rejected_and_never_stored_empty(
    cluster: DevCluster, unused_tcp_port: int
) -> None:
    upgraded = operator(unused_tcp_port, NewJobConverter())
    async with Client.connect(kubeconfig=cluster.kubeconfig, field_manager="jobs") as client:
        try:
            for crd in custom_resource_definitions([Job]):
                await client.apply(crd, force=True)
            await established(client)
            await client.create(
                Job(metadata=ObjectMeta(name="old", namespace="default"), spec=JobSpec(cron="0 12"))
            )
            for crd in upgraded.definitions():
                await client.apply(crd, force=True)
            await until_refused(client, new_job("early"))
            assert [job.name for job in (await client.list(Job)).items] == ["old"]
            async with upgraded.running(client), asyncio.timeout(30):
                await created(client, new_job("late"))
                jobs = {job.name: job.spec for job in (await client.list(NewJob)).items}
            assert (jobs["old"].schedule.minute, jobs["old"].schedule.hour) == ("0", "12")
            assert (jobs["late"].schedule.minute, jobs["late"].schedule.hour) == ("5", "4")
            assert (await client.get(Job, "late", namespace="default")).spec.cron == "5 4"
        finally:
            await client.delete(CRD, "jobs.upgrade.example.com")
            with contextlib.suppress(errors.NotFound):
                await client.delete("v1/Secret", "jobs-webhook-certificates")


async def established(client: Client) -> None:
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(errors.ClientError):
                await client.list(Job)
                return
            await asyncio.sleep(0.1)


async def until_refused(client: Client, job: NewJob) -> None:
    """Create a resource of the new version until the API server knows it, and refuses for its webhook."""
    async with asyncio.timeout(30):
        while True:
            try:
                await client.create(job)
            except errors.ClientError as error:
                if "conversion webhook" in str(error):
                    return
            else:
                raise AssertionError("a resource that nothing can convert was stored")
            await asyncio.sleep(0.1)


async def created(client: Client, job: NewJob) -> None:
    while True:
        with contextlib.suppress(errors.ClientError):
            await client.create(job)
            return
        await asyncio.sleep(0.2)
