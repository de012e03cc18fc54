"""Planted secrets in a rollout by the real Helm: none is in the process list, in a child's environment, or in a span."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kapsa.devcluster.faults.gate import FaultGate
from kapsa.devcluster.faults.plan import Delay, FaultPlan, FaultRule
from kapsa.devcluster.wire.exchange import Reply, Request
from kapsa.fleet.infrastructure.telemetry import rollout_traces
from kapsa.fleet.infrastructure.telemetry.rollout_traces import RolloutTraces
from kapsa.fleet.settings import FleetSettings
from tests.fleet.rollouts.live_fleet import LiveFleet, live_fleet, sample_chart
from tests.fleet.rollouts.manager_processes import PATIENCE, manager_processes
from tests.process_table import process_table

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]

VALUE, LOGIN = "planted-secret-value", "planted-repository-password"
SMTP, WEBHOOK, OIDC = "planted-smtp-password", "planted-secret-of-a-webhook", "planted-client-secret"
SECRET = """apiVersion: v1
kind: Secret
metadata: {name: "{{ .Release.Name }}", namespace: "{{ .Release.Namespace }}"}
stringData: {password: {{ .Values.password | quote }}}
"""
REFUSED = """apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}", namespace: "{{ .Release.Namespace }}"}
spec: {type: {{ .Values.password | quote }}, ports: [{port: 80}]}
"""
UNRENDERED = """{{ with .Values.password }}{{ fail (printf "the password %s is too short" .) }}{{ end }}"""


@pytest.fixture
def secret_settings(settings: FleetSettings) -> FleetSettings:
    """Settings with a secret of each kind. Nothing answers at the addresses of mail and webhooks."""
    return msgspec.structs.replace(
        settings,
        smtp_host="127.0.0.1",
        smtp_port=9,
        smtp_security="none",
        smtp_username="fleet",
        smtp_password=SMTP,
        approval_recipients=("ada@example.com",),
        webhook_urls=("http://127.0.0.1:9/events",),
        webhook_secret=WEBHOOK,
        oidc_client_secret=OIDC,
    )


@pytest.fixture
def cluster_tokens(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The bearer tokens that the API servers of the clusters have received."""
    tokens: set[str] = set()
    serve = FaultGate.serve

    async def recording(gate: FaultGate, request: Request, *arguments: Any) -> Reply:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme == "Bearer":
            tokens.add(token)
        return await serve(gate, request, *arguments)

    monkeypatch.setattr(FaultGate, "serve", recording)
    return tokens


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # A process has one provider for good; a test may not take it.
    monkeypatch.setattr(rollout_traces, "find_tracing", lambda: RolloutTraces(provider))
    return exporter


@asynccontextmanager
async def secret_fleet(settings: FleetSettings, faults: FaultPlan) -> AsyncIterator[LiveFleet]:
    """Open a fleet of one cluster, whose operator comes from a repository with a password."""
    async with live_fleet(settings, {"dev-1": "Dev"}, faults={"dev-1": faults}) as fleet:
        fleet.repository.login = ("reader", LOGIN)
        charts = [
            sample_chart(f"{number}.0.0", files={"templates/more.yaml": template})
            for number, template in enumerate((SECRET, REFUSED, UNRENDERED), 1)
        ]
        login = {"username": "reader", "password": LOGIN}
        await fleet.register_operator(*charts, credentials=login)
        yield fleet


def planted(fleet: LiveFleet, cluster_tokens: set[str]) -> list[str]:
    """Return every secret that the manager has."""
    assert cluster_tokens, "the manager uses tokens of the cluster"
    kubeconfig = yaml.safe_load(Path(fleet.clusters["dev-1"].kubeconfig).read_text())
    uploaded = kubeconfig["users"][0]["user"]["client-key-data"]
    sealing = fleet.settings.encryption_keys.partition(":")[2]
    return [VALUE, LOGIN, SMTP, WEBHOOK, OIDC, sealing, uploaded, *cluster_tokens]


class ProcessWatch:
    """A thread that reads the command lines of a process and its descendants, and the environment of the latter."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._own = command_line(pid)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.command_lines = {self._own}
        self.environments: set[str] = set()

    def __enter__(self) -> ProcessWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.005):
            for pid in descendants(self._pid):
                with contextlib.suppress(OSError):
                    self._read(pid)

    def _read(self, pid: int) -> None:
        line = command_line(pid)
        self.command_lines.add(line)
        if line != self._own:  # until it runs its program, a child shows what its parent has
            self.environments.add(process_file(pid, "environ"))


def command_line(pid: int) -> str:
    return process_file(pid, "cmdline")


def process_file(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def descendants(pid: int) -> set[int]:
    table = process_table()
    members = {pid}
    while more := {each.pid for each in table if each.parent in members} - members:
        members |= more
    return members - {pid}


async def test_no_planted_secret_is_in_the_process_list_or_the_log_while_helm_runs(
    secret_settings: FleetSettings, tmp_path: Path, cluster_tokens: set[str]
) -> None:
    faults = FaultPlan()
    async with secret_fleet(secret_settings, faults) as fleet:
        await fleet.server.tasks.stop()
        async with manager_processes(secret_settings, tmp_path, count=1) as managers:
            (manager,) = managers.running
            with ProcessWatch(manager.process.pid) as watch:
                # Helm waits for the answer, so that it is seen.
                faults.add(FaultRule(action=Delay(2), verb="create", resource="secrets"))
                done = await fleet.deploy("1.0.0", "Direct", secretValues={"password": VALUE})
                await fleet.finish(done, seconds=PATIENCE)
            secrets = planted(fleet, cluster_tokens)
            log = manager.log.read_text()
    programs = "\n".join(sorted({*watch.command_lines, *watch.environments}))
    assert "fleet serve" in programs
    assert "helm upgrade " in programs, sorted(watch.command_lines)
    assert "HELM_PLUGINS=" in programs, "Helm's environment"
    assert "deployment" in log
    assert [secret for secret in secrets if secret in programs or secret in log] == []


async def test_no_planted_secret_is_in_a_span_whether_a_rollout_succeeds_or_fails(
    secret_settings: FleetSettings, exporter: InMemorySpanExporter, cluster_tokens: set[str]
) -> None:
    async with secret_fleet(secret_settings, FaultPlan()) as fleet:
        secret = {"secretValues": {"password": VALUE}}
        await fleet.finish(await fleet.deploy("1.0.0", "Direct", **secret))
        for version in ("2.0.0", "3.0.0"):  # one is rejected by the API server, the other by its own template
            await fleet.finish(await fleet.deploy(version, "Direct", **secret), "Failed")
        secrets = planted(fleet, cluster_tokens)
    exported = "\n".join(span.to_json() for span in exporter.get_finished_spans())
    for name in ("operator.deploy", "operator.validate", "helm.install", "crd.apply"):
        assert json.dumps(name) in exported
    assert "ERROR" in exported
    assert [secret for secret in secrets if secret in exported] == []
