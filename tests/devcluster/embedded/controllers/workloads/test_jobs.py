"""Jobs and CronJobs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster.embedded.controllers.client import ObjectClient, condition

pytestmark = pytest.mark.virtual_time


def job(**more: Any) -> dict[str, Any]:
    pod = {
        "restartPolicy": more.pop("restartPolicy", "Never"),
        "containers": [{"name": "main", "image": "app:1"}],
    }
    return {"template": {"spec": pod}, **more}


async def test_a_job_completes_when_its_pod_succeeds(client: ObjectClient) -> None:
    client.workloads.delay(finish=30)
    await client.create("jobs", "work", job())
    await client.settle(10)
    status = client.get("jobs", "work")["status"]
    assert (status["active"], status["ready"], status["terminating"]) == (1, 1, 0)
    assert status["startTime"] == "2026-01-01T00:00:00Z"
    await client.settle(30)
    done = client.get("jobs", "work")
    assert [c["type"] for c in done["status"]["conditions"]] == ["SuccessCriteriaMet", "Complete"]
    complete = condition(done, "Complete")
    assert (complete["reason"], complete["message"]) == (
        "CompletionsReached",
        "Reached expected number of succeeded pods",
    )
    assert done["status"]["succeeded"] == 1
    assert done["status"]["completionTime"] == "2026-01-01T00:00:30Z"
    assert done["status"]["uncountedTerminatedPods"] == {}
    (pod,) = client.list("pods")
    assert "finalizers" not in pod["metadata"]
    assert ("Completed", "Job completed") in client.events("work")


async def test_a_failing_job_retries_with_back_off_and_gives_up_at_its_limit(client: ObjectClient) -> None:
    client.workloads.crash({"job-name": "work"}, exit_code=3)
    await client.create("jobs", "work", job(backoffLimit=2))
    await client.settle(5)
    assert len(client.list("pods")) == 1
    await client.settle(10)
    assert len(client.list("pods")) == 2
    await client.settle(10)
    assert len(client.list("pods")) == 2
    await client.settle(60)
    failed = client.get("jobs", "work")
    assert [c["type"] for c in failed["status"]["conditions"]] == ["FailureTarget", "Failed"]
    assert condition(failed, "Failed")["reason"] == "BackoffLimitExceeded"
    assert condition(failed, "Failed")["message"] == "Job has reached the specified backoff limit"
    assert failed["status"]["failed"] == 3
    terminated = client.list("pods")[0]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (3, "Error")


async def test_a_job_whose_first_pod_fails_succeeds_with_the_second(client: ObjectClient) -> None:
    await client.create("jobs", "work", job())
    client.workloads.crash({"job-name": "work"})
    await client.settle(1)
    client.workloads.heal()
    await client.settle(30)
    status = client.get("jobs", "work")["status"]
    assert (status["failed"], status["succeeded"]) == (1, 1)


async def test_on_failure_restarts_in_place_and_counts_restarts(client: ObjectClient) -> None:
    client.workloads.crash({"job-name": "work"}, times=1)
    await client.create("jobs", "work", job(restartPolicy="OnFailure"))
    await client.settle(60)
    (pod,) = client.list("pods")
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1
    assert condition(client.get("jobs", "work"), "Complete")["status"] == "True"


async def test_parallelism_limits_the_running_pods(client: ObjectClient) -> None:
    client.workloads.delay(finish=10)
    await client.create("jobs", "work", job(parallelism=2, completions=5))
    most = 0
    for _ in range(40):
        await client.settle(1)
        most = max(most, client.get("jobs", "work")["status"].get("active", 0))
    assert most == 2
    assert client.get("jobs", "work")["status"]["succeeded"] == 5


async def test_an_indexed_job_gives_each_pod_its_index(client: ObjectClient) -> None:
    await client.create("jobs", "work", job(completions=4, parallelism=4, completionMode="Indexed"))
    await client.settle(5)
    done = client.get("jobs", "work")
    assert done["status"]["completedIndexes"] == "0-3"
    indexes = sorted(
        p["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] for p in client.list("pods")
    )
    assert indexes == ["0", "1", "2", "3"]
    pod = next(p for p in client.list("pods") if p["spec"]["hostname"] == "work-2")
    assert pod["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"


async def test_a_job_that_outlives_its_deadline_fails_and_loses_its_pods(client: ObjectClient) -> None:
    client.workloads.delay(finish=1000)
    await client.create("jobs", "work", job(activeDeadlineSeconds=60))
    await client.settle(90)
    failed = condition(client.get("jobs", "work"), "Failed")
    assert (failed["reason"], failed["message"]) == (
        "DeadlineExceeded",
        "Job was active longer than specified deadline",
    )
    assert client.names("pods") == []


async def test_a_suspended_job_has_no_pods_until_it_is_resumed(client: ObjectClient) -> None:
    await client.create("jobs", "work", job(suspend=True))
    await client.settle(10)
    suspended = client.get("jobs", "work")
    assert condition(suspended, "Suspended")["reason"] == "JobSuspended"
    assert "startTime" not in suspended["status"]
    assert client.names("pods") == []
    await client.change("jobs", "work", suspend=False)
    await client.settle(10)
    resumed = client.get("jobs", "work")
    assert condition(resumed, "Suspended")["reason"] == "JobResumed"
    assert condition(resumed, "Complete")["status"] == "True"


async def test_a_finished_job_is_deleted_after_its_time_to_live(client: ObjectClient) -> None:
    await client.create("jobs", "work", job(ttlSecondsAfterFinished=100))
    await client.settle(90)
    assert client.names("jobs") == ["work"]
    await client.settle(20)
    assert client.names("jobs") == []
    assert client.names("pods") == []


async def test_a_pod_failure_policy_ends_the_job_at_once(client: ObjectClient) -> None:
    client.workloads.crash({"job-name": "work"}, exit_code=42)
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    await client.create("jobs", "work", job(podFailurePolicy={"rules": [rule]}))
    await client.settle(5)
    failed = condition(client.get("jobs", "work"), "Failed")
    assert failed["reason"] == "PodFailurePolicy"
    (pod,) = client.names("pods")
    assert failed["message"] == (
        f"Container main for pod default/{pod} failed with exit code 42 matching FailJob rule at index 0"
    )


# -- CronJobs -------------------------------------------------------------------------------------------------


def cron(schedule: str = "*/5 * * * *", **more: Any) -> dict[str, Any]:
    return {"schedule": schedule, "jobTemplate": {"spec": job()}, **more}


async def test_a_cron_job_runs_on_schedule_and_limits_its_history(client: ObjectClient) -> None:
    await client.create("cronjobs", "tick", cron(successfulJobsHistoryLimit=2))
    await client.settle(60 * 22)
    status = client.get("cronjobs", "tick")["status"]
    assert status == {
        "lastScheduleTime": "2026-01-01T00:20:00Z",
        "lastSuccessfulTime": "2026-01-01T00:20:00Z",
    }
    jobs = client.list("jobs")
    assert len(jobs) == 2
    annotation = "batch.kubernetes.io/cronjob-scheduled-timestamp"
    assert jobs[-1]["metadata"]["annotations"][annotation] == "2026-01-01T00:20:00Z"
    assert jobs[-1]["metadata"]["ownerReferences"][0]["kind"] == "CronJob"


@pytest.mark.parametrize(("policy", "running"), [("Allow", 3), ("Forbid", 1), ("Replace", 1)])
async def test_concurrency_policy(client: ObjectClient, policy: str, running: int) -> None:
    client.workloads.delay(finish=100_000)
    await client.create("cronjobs", "tick", cron(concurrencyPolicy=policy))
    await client.settle(60 * 17)
    assert len(client.get("cronjobs", "tick")["status"]["active"]) == running
    first = client.list("jobs")[0]["metadata"]["annotations"][
        "batch.kubernetes.io/cronjob-scheduled-timestamp"
    ]
    assert first == ("2026-01-01T00:15:00Z" if policy == "Replace" else "2026-01-01T00:05:00Z")


async def test_a_suspended_cron_job_does_not_run(client: ObjectClient) -> None:
    await client.create("cronjobs", "tick", cron(suspend=True))
    await client.settle(3600)
    assert client.names("jobs") == []


async def test_a_time_zone_shifts_the_schedule(client: ObjectClient) -> None:
    await client.create("cronjobs", "tick", cron("30 3 * * *", timeZone="Europe/Helsinki"))
    await client.settle(3600 * 24)
    assert client.get("cronjobs", "tick")["status"]["lastScheduleTime"] == "2026-01-01T01:30:00Z"


async def test_a_missed_run_within_the_starting_deadline_is_started_late(client: ObjectClient) -> None:
    await client.create("cronjobs", "tick", cron(suspend=True, startingDeadlineSeconds=120))
    await client.settle(60 * 6)
    await client.change("cronjobs", "tick", suspend=False)
    await client.settle(1)
    assert client.get("cronjobs", "tick")["status"]["lastScheduleTime"] == "2026-01-01T00:05:00Z"


async def test_a_schedule_without_a_time_is_recorded_as_an_event(client: ObjectClient) -> None:
    await client.create("cronjobs", "never", cron("59 23 31 2 *"))
    await client.settle(60)
    events = [(event["type"], event["reason"], event["message"]) for event in client.list("events")]
    detail = "time difference between two schedules is less than 1 second"
    assert events == [("Warning", "InvalidSchedule", f"invalid schedule: 59 23 31 2 * : {detail}")]
    assert client.names("jobs") == []
