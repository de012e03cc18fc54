"""The steps of the fleet's demo: what a platform team does with the manager. Each step waits for its result."""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import Any

import msgspec

from kapsa.cli.demo.fleet.cluster_table import FleetDisplay
from kapsa.cli.demo.fleet.services import BAD, BETTER, ENVIRONMENTS, FIRST, VERSIONS, FleetDemo
from kapsa.cli.fleet.client.problems import CallRefused
from kapsa.fleet.testing.sample_chart import CHART, GADGET, gadget
from kapsa.runtime import Client

__all__ = ["FleetDemoFailed", "FleetWalkthrough"]

NAMESPACE = "gadgets"
GADGETS = 10
_SECONDS = 300.0
"""The longest wait for a phase, which takes seconds unless the machine is very busy."""
_POLL_SECONDS = 0.1
_CANARY = {"percentages": [10, 30, 100], "evaluationPeriod": "PT1S"}
_ENDS = frozenset({"Completed", "RolledBack", "Failed", "Aborted", "Rejected"})


class FleetDemoFailed(Exception):  # noqa: N818 - named as what happened
    """A step did not reach its result."""

    for_the_user = True


class FleetWalkthrough:
    """One run of the demo."""

    def __init__(self, demo: FleetDemo, display: FleetDisplay) -> None:
        self._demo = demo
        self._display = display
        self._ada, self._berta = demo.people["ada"], demo.people["berta"]

    async def run(self) -> None:
        """Run all steps."""
        await self._register()
        await self._install()
        before = await self._content()
        await self._canary()
        await self._bad_version()
        if await self._content() != before:
            raise FleetDemoFailed("the content of a Gadget changed")
        total = GADGETS * len(before)
        self._display.confirm(f"all {total} Gadgets have the same content as before: nothing is lost")

    async def _register(self) -> None:
        display = self._display
        display.headline("A team registers its clusters and an operator")
        people = list(self._demo.people.values())  # each may register five clusters a minute
        for number, (name, environment) in enumerate(ENVIRONMENTS.items()):
            kubeconfig = self._demo.clusters[name].kubeconfig.read_text()
            body = {"name": name, "environment": environment, "kubeconfig": kubeconfig}
            await people[number % len(people)].post("/clusters", body)
        counts = {
            each: list(ENVIRONMENTS.values()).count(each) for each in dict.fromkeys(ENVIRONMENTS.values())
        }
        summary = ", ".join(f"{count} {environment}" for environment, count in counts.items())
        display.confirm(
            f"{len(ENVIRONMENTS)} clusters are registered ({summary}); each gave the manager a short-lived token"
        )
        source = {"type": "http", "repository": self._demo.repository.url, "chart": CHART}
        operator = {"name": CHART, "namespace": NAMESPACE, "source": source, "version": VERSIONS[0]}
        await self._ada.post("/operators", operator)
        for version in VERSIONS[1:]:
            await self._ada.post(f"/operators/{CHART}/versions", {"version": version})
        display.confirm(
            f"{CHART} is registered with versions {', '.join(VERSIONS)}: pulled, linted, rendered, CRDs stored"
        )

    async def _install(self) -> None:
        self._display.headline(f"Version {FIRST} is installed on all clusters")
        deployment = await self._deploy(FIRST, {"percentages": [100], "evaluationPeriod": "PT0S"})
        await self._approve(deployment, show=False)
        await self._follow(deployment, "Completed")
        await asyncio.gather(*(_create_gadgets(client) for client in self._demo.clients.values()))
        self._display.confirm(
            f"it runs everywhere, and each cluster has {GADGETS} Gadgets that it reconciles"
        )

    async def _canary(self) -> None:
        display = self._display
        display.headline(f"Version {BETTER} goes out as a canary: 10 %, 30 %, then all clusters")
        deployment = await self._deploy(BETTER, _CANARY)
        await self._approve(deployment, show=True)
        done = await self._follow(deployment, "Completed")
        sizes = [len(stage["clusters"]) for stage in done["deployment"]["stages"]]
        display.confirm(f"{BETTER} is healthy on all clusters, in stages of {', '.join(map(str, sizes))}")

    async def _bad_version(self) -> None:
        display = self._display
        display.headline(f"Version {BAD} is bad: it crashes, but not on the first cluster")
        deployment = await self._deploy(BAD, _CANARY)
        await self._approve(deployment, show=False)
        done = await self._follow(deployment, "RolledBack")
        status = await self._ada.get(f"/deployments/{deployment}/rollback-status")
        display.confirm(f"caught: {status['reason']}")
        back = [each["cluster"] for each in done["clusters"] if each["state"] == "RolledBack"]
        display.confirm(
            f"{', '.join(sorted(back))} run {BETTER} again, the finished stage too; the others were never touched"
        )
        try:
            await self._ada.post("/deployments", self._request(BAD, _CANARY))
        except CallRefused as refused:
            display.confirm(f"{BAD} is not deployed again: {refused.detail}")
        else:
            raise FleetDemoFailed(f"version {BAD} was accepted again after its rollback")

    def show_instructions(self) -> None:
        """Print what to try while the demo keeps running."""
        url = self._demo.manager.http.url
        self._display.headline("The demo keeps running. Try it yourself in another terminal:")
        name, cluster = next(iter(self._demo.clusters.items()))
        self._display.show(
            f"\n  export FLEET={url}/api/v1\n"
            f"  export TOKEN={self._demo.tokens['ada']}\n"
            '  curl -s -H "Authorization: Bearer $TOKEN" $FLEET/deployments\n'
            '  curl -s -H "Authorization: Bearer $TOKEN" $FLEET/clusters\n'
            '  curl -s -H "Authorization: Bearer $TOKEN" $FLEET/audit\n\n'
            f"  KUBECONFIG={cluster.kubeconfig} kubectl get pods,gadgets -A      # {name}\n\n"
            f"The API is documented at {url}/docs. Press Ctrl-C to stop and remove everything.\n"
        )

    # -- actions -----------------------------------------------------------------------------------------------

    def _request(self, version: str, canary: dict[str, Any]) -> dict[str, Any]:
        return {
            "operator": CHART,
            "version": version,
            "targets": {"clusters": list(ENVIRONMENTS)},
            "strategy": "Canary",
            "canaryConfig": canary,
        }

    async def _deploy(self, version: str, canary: dict[str, Any]) -> str:
        return str((await self._ada.post("/deployments", self._request(version, canary)))["id"])

    async def _approve(self, deployment: str, *, show: bool) -> None:
        """Approve a plan as somebody else than its requester."""
        await self._reach(deployment, "AwaitingApproval")
        plan = await self._ada.get(f"/deployments/{deployment}/plan")
        if show:
            changes = len(plan["plan"]["clusters"])
            self._display.say(f"the plan changes {changes} clusters; its digest is {plan['digest'][:19]}…")
        pending = await self._pending(deployment)
        if show:
            await self._refuse_own(pending[0])
        for approval in pending:
            await self._berta.post(f"/approvals/{approval}/approve", {"comment": "read the plan"})
        if show:
            self._display.confirm("berta approved exactly these bytes; ada, who asked for them, could not")

    async def _pending(self, deployment: str) -> list[str]:
        items = (await self._berta.get("/approvals"))["items"]
        return [each["id"] for each in items if each["deploymentId"] == deployment]

    async def _refuse_own(self, approval: str) -> None:
        try:
            await self._ada.post(f"/approvals/{approval}/approve", {"comment": "my own"})
        except CallRefused:
            return
        raise FleetDemoFailed("ada approved what she requested herself")

    # -- waiting -----------------------------------------------------------------------------------------------

    async def _follow(self, deployment: str, phase: str) -> Any:
        async with self._display.following(self._ada, deployment):
            return await self._reach(deployment, phase)

    async def _reach(self, deployment: str, phase: str) -> Any:
        deadline = time.monotonic() + _SECONDS
        while True:
            details = await self._ada.get(f"/deployments/{deployment}")
            present = details["deployment"]["phase"]
            if present == phase:
                return details
            if present in _ENDS or time.monotonic() > deadline:
                raise FleetDemoFailed(_failure(details, phase))
            await asyncio.sleep(_POLL_SECONDS)

    async def _content(self) -> dict[str, str]:
        """Return a hash over all Gadgets of each cluster, their status left out."""
        return {name: await _hash(client) for name, client in self._demo.clients.items()}


def _failure(details: Any, phase: str) -> str:
    deployment = details["deployment"]
    reasons = [f"{each['cluster']}: {each['message']}" for each in details["clusters"] if each["message"]]
    states = [f"{each['cluster']} is {each['state']}" for each in details["clusters"]]
    why = deployment["message"] or deployment["waitsFor"] or "; ".join(reasons or states)
    return f"the deployment of {deployment['version']} is {deployment['phase']}, not {phase}: {why}"


async def _create_gadgets(client: Client) -> None:
    for number in range(GADGETS):
        await client.create(gadget(f"gadget-{number}", "default", size=number, color="blue"))


async def _hash(client: Client) -> str:
    items = (await client.list(GADGET)).items
    kept = [(each["metadata"]["uid"], each["metadata"]["name"], each["spec"]) for each in items]
    return hashlib.sha256(msgspec.json.encode(sorted(kept, key=str), order="sorted")).hexdigest()
