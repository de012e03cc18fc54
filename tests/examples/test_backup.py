"""The backup operator."""

from typing import Any

import pytest

from examples.backup.backup import BACKUP_LABEL, Backup, operator
from kapsa.runtime import Operator, Quantity
from tests.examples.namespaced_harness import NamespacedHarness


async def ask_for(harness: NamespacedHarness, **spec: Any) -> None:
    await harness.apply(Backup, "orders", **{"sourceClaim": "data", "targetClaim": "archives", **spec})


async def provide_claims(harness: NamespacedHarness) -> None:
    for name in ("data", "archives"):
        await harness.provide_claim(name)


async def jobs_of(harness: NamespacedHarness) -> list[dict[str, Any]]:
    listed = await harness.client.list("batch/v1/Job", namespace=harness.namespace)
    return [job for job in listed.items if "deletionTimestamp" not in job["metadata"]]


async def leave_message(harness: NamespacedHarness, job: str, message: str) -> None:
    """End the pod of a run with a termination message."""
    selector = f"{BACKUP_LABEL},batch.kubernetes.io/job-name={job}"
    pods = await harness.client.list("v1/Pod", namespace=harness.namespace, label_selector=selector)
    (pod,) = pods.items
    statuses = [dict(status) for status in pod["status"]["containerStatuses"]]
    statuses[0]["state"]["terminated"]["message"] = message
    await harness.client.patch(
        "v1/Pod",
        pod["metadata"]["name"],
        {"status": {"containerStatuses": statuses}},
        namespace=harness.namespace,
        subresource="status",
    )


async def completed(harness: NamespacedHarness, generation: int) -> Any:
    """Wait until the run for this generation is complete."""

    async def is_complete() -> Any:
        backup = await harness.get(Backup, "orders")
        done = backup.status.observed_generation == generation and backup.status.phase == "Complete"
        return backup if done else None

    return await harness.until(is_complete, f"the run of generation {generation} is complete")


async def test_a_backup_runs_a_job_and_reports_its_completion(harness: NamespacedHarness) -> None:
    await provide_claims(harness)
    await harness.run(operator)
    await ask_for(harness)
    backup = await completed(harness, 1)
    (job,) = await jobs_of(harness)
    assert backup.status.last_job == job["metadata"]["name"]
    assert backup.status.last_backup_time is not None
    assert backup.status.is_true("Complete")
    volumes = job["spec"]["template"]["spec"]["volumes"]
    assert [each["persistentVolumeClaim"]["claimName"] for each in volumes] == ["data", "archives"]


async def test_the_archives_size_is_read_from_the_pod_even_after_the_job_is_done(
    harness: NamespacedHarness,
) -> None:
    await provide_claims(harness)
    await harness.run(operator)
    await ask_for(harness)
    backup = await completed(harness, 1)
    await leave_message(harness, backup.status.last_job, "1048576\n")

    async def has_size() -> bool:
        size = (await harness.get(Backup, "orders")).status.size
        return bool(size == Quantity("1Mi"))

    await harness.until(has_size, "the size is in the status")


async def test_jobs_beyond_the_retention_are_deleted_oldest_first(harness: NamespacedHarness) -> None:
    await provide_claims(harness)
    await harness.run(operator)
    names = []
    for generation, image in enumerate(("busybox:1.35", "busybox:1.36", "busybox:1.37"), start=1):
        await ask_for(harness, retention=2, image=image)
        names.append((await completed(harness, generation)).status.last_job)
        await harness.inner.clock.sleep(1.1)  # Jobs are ordered by their age in whole seconds

    async def two_are_left() -> bool:
        return sorted(job["metadata"]["name"] for job in await jobs_of(harness)) == sorted(names[1:])

    await harness.until(two_are_left, "only the last two Jobs are left")


@pytest.mark.virtual_time
async def test_a_backup_with_an_interval_runs_again_when_it_is_time(harness: NamespacedHarness) -> None:
    await provide_claims(harness)
    await harness.run(Operator(controllers=operator.controllers))  # no lease to renew for a day
    await ask_for(harness, intervalHours=6, retention=10)
    await completed(harness, 1)
    await harness.inner.clock.sleep(24 * 3600)
    await harness.at_rest()
    assert len(await jobs_of(harness)) == 5
