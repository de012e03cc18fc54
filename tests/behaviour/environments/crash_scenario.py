"""A scenario for crash sweeps: a project with fakes of the systems outside, and the report of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from kapsa.environments.names import namespace_name
from kapsa.environments.ports import BuildProgress
from kapsa.environments.resources import KINDS, Environment, Project
from kapsa.runtime.testing import CRASH_MOMENTS, CrashMoment, Harness, Sample, Scenario, crash_at_every_write
from tests.environments.fakes import FakeBuilds, commit_of
from tests.environments.tenant import REPOSITORY, FakeSystems, operator

__all__ = [
    "HOME",
    "NEXT",
    "WORST",
    "CrashScenario",
    "PushingBuilds",
    "Sweep",
    "apply_commit",
    "manifest",
    "sweep",
]

RecordProperty = Callable[[str, object], None]
WORST: Sequence[CrashMoment] = ["commit"]
"""The write is stored, and its response is lost."""
NEXT: Sequence[CrashMoment] = ["before"]
"""The write is not stored. A crash after a write leaves the same state as one before the next write, so that
long scenarios need only one of the two."""
HOME = namespace_name("team", "app")
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "settings", "namespace": "team"},
    "stringData": {"KEY": "value"},
}


class CrashScenario:
    """A scenario with fakes that are new for each run."""

    def __init__(self, **spec: Any) -> None:
        self.spec = spec
        self.systems = FakeSystems()

    async def prepare(self, harness: Harness) -> None:
        self.systems = FakeSystems()
        self.systems.builds = PushingBuilds(self.systems.images)
        await harness.install(*KINDS)
        await harness.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        await harness.apply(SECRET)
        spec = {
            "source": {"repositoryUrl": REPOSITORY},
            "deployment": {"type": "manifest"},
            "secrets": [{"name": "settings"}],
            "resources": {"defaultQuota": {"cpu": "2", "memory": "2Gi"}},
            **self.spec,
        }
        await harness.apply(manifest(Project, "app", "team", spec))

    def scenario(self, *steps: Callable[[Harness], Any]) -> Scenario:
        return Scenario(
            operator=lambda: operator(self.systems),
            prepare=self.prepare,
            steps=steps,
            ignore=["pods", "endpointslices", "endpoints"],
            # Projects poll forever: work that is not done after the longest wait was lost in a crash.
            horizon=90,
        )


class PushingBuilds(FakeBuilds):
    """A build engine whose image is in the registry once its Job has completed."""

    def progress(self, build: Mapping[str, Any]) -> BuildProgress:
        progress = super().progress(build)
        if progress.state == "succeeded":
            (container,) = build["spec"]["template"]["spec"]["containers"]
            self._images.push(container["env"][0]["value"])
        return progress


def manifest(kind: Any, name: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def apply_commit(commit: str) -> Callable[[Harness], Any]:
    spec = {"projectRef": {"name": "app"}, "source": {"commitSha": commit_of(commit)}}
    return lambda harness: harness.apply(manifest(Environment, "one", HOME, spec))


class Sweep(NamedTuple):
    """Crashes of a scenario, and their report at the end of the test run."""

    sample: Sample | None
    record_property: RecordProperty

    async def __call__(
        self,
        name: str,
        scenario: Scenario,
        moments: Sequence[CrashMoment] = CRASH_MOMENTS,
        *,
        least_points: int = 30,
    ) -> None:
        """Run the sweep, or a sample of it; the complete one must have this many points at least."""
        report = await crash_at_every_write(scenario, moments=moments, sample=self.sample)
        self.record_property("sweep", f"{name}: {report}")
        assert not report.failures, str(report)
        assert report.total >= least_points


@pytest.fixture
def sweep(sample: Sample | None, record_property: RecordProperty) -> Sweep:
    return Sweep(sample, record_property)
