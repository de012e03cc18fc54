"""The programs of the drop-in for envtest, started with the flags that envtest passes."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kapsa.devcluster.certificates import Authority
from kapsa.devcluster.envtest.assets import write_assets
from kapsa.devcluster.envtest.flags import FlagError, parse_flags
from kapsa.devcluster.real.binaries import find_binaries

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def assets(tmp_path: Path) -> Path:
    directory = tmp_path / "assets with a space"
    write_assets(directory, kubectl=None)
    return directory


@pytest.fixture
def start(assets: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start(name: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen([str(assets / name), *arguments], stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def get(port: int, path: str, tls: ssl.SSLContext | None = None, seconds: float = 20) -> tuple[int, Any]:
    """Read a path, once the port is open."""
    deadline = time.monotonic() + seconds
    while True:
        connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection("127.0.0.1", port, context=tls, timeout=10)
            if tls is not None
            else http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        )
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        finally:
            connection.close()


class Certificates:
    """The certificates that envtest issues: one authority for the server, another for its clients."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.servers, self.clients = Authority("servers"), Authority("clients")
        self.servers.issue_server(["127.0.0.1", "localhost"]).write(directory, "apiserver")
        (directory / "client-ca.crt").write_bytes(self.clients.pair.certificate)

    def context(self, user: str = "", *groups: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.servers.pair.certificate.decode())
        if user:
            context.load_cert_chain(*self.clients.issue_client(user, groups).write(self.directory, user))
        return context

    def flags(self, port: int) -> list[str]:
        return [
            "--allow-privileged=true",
            "--authorization-mode=RBAC",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.directory}",
            f"--client-ca-file={self.directory / 'client-ca.crt'}",
            "--disable-admission-plugins=ServiceAccount",
            "--etcd-servers=http://127.0.0.1:1",
            f"--secure-port={port}",
            f"--service-account-issuer=https://127.0.0.1:{port}/",
            "--service-cluster-ip-range=10.0.0.0/24",
        ]


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certificates")


def test_etcd_answers_health_checks_until_it_is_stopped(start: Start) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = start(
        "etcd", f"--listen-client-urls={url}", f"--advertise-client-urls={url}", "--data-dir=/nowhere"
    )
    status, body = get(port, "/health")
    assert (status, json.loads(body)) == (200, {"health": "true", "reason": ""})
    assert get(port, "/v3/kv")[0] == 404
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == -signal.SIGTERM
    assert process.stderr is not None
    assert process.stderr.read() == ""


def test_etcd_refuses_flags_that_would_restrict_its_clients(start: Start) -> None:
    _, said = start("etcd", "--client-cert-auth=true").communicate(timeout=10)
    assert (
        said
        == "etcd: --client-cert-auth is not supported: this etcd is part of kapsa's drop-in for envtest\n"
    )


def test_help_has_the_flags_that_envtest_looks_for(assets: Path) -> None:
    def read(name: str) -> str:
        return subprocess.run([assets / name, "--help"], capture_output=True, text=True, check=True).stdout

    assert "\n  --unsafe-no-fsync" in read("etcd")
    assert "--insecure-port" not in read("kube-apiserver")


def test_the_api_server_knows_its_callers_by_their_certificates(
    start: Start, certificates: Certificates
) -> None:
    port = free_port()
    process = start("kube-apiserver", *certificates.flags(port))
    assert get(port, "/healthz", certificates.context()) == (200, b"ok")
    admin, eve = certificates.context("admin", "system:masters"), certificates.context("eve", "guests")
    status, body = get(port, "/api/v1/namespaces/default/secrets", admin)
    assert (status, json.loads(body)["items"]) == (200, [])
    for context, user in ((eve, "eve"), (certificates.context(), "system:anonymous")):
        status, body = get(port, "/api/v1/namespaces/default/secrets", context)
        assert status == 403
        assert json.loads(body)["message"] == (
            f'secrets is forbidden: User "{user}" cannot list resource "secrets" in API group "" '
            'in the namespace "default"'
        )
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 0
    assert process.stderr is not None
    assert (
        "kube-apiserver: --etcd-servers has no effect: the state is in this process\n"
        in process.stderr.read()
    )


def test_a_busy_port_and_a_missing_certificate_are_one_line_each(
    start: Start, certificates: Certificates
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for name, arguments in (
            ("kube-apiserver", certificates.flags(port)),
            ("etcd", [f"--listen-client-urls=http://127.0.0.1:{port}"]),
        ):
            process = start(name, *arguments)
            _, said = process.communicate(timeout=20)
            assert process.returncode == 1
            assert said == f"{name}: cannot listen on 127.0.0.1:{port}: Address already in use\n"
    (certificates.directory / "apiserver.crt").unlink()
    process = start("kube-apiserver", *certificates.flags(free_port()))
    _, said = process.communicate(timeout=20)
    assert process.returncode == 1
    assert said.startswith(f"kube-apiserver: {certificates.directory / 'apiserver.crt'} does not exist; ")


@pytest.mark.parametrize(
    "flag",
    [
        "--anonymous-auth=false",
        "--authorization-mode=Webhook",
        "--authorization-webhook-config-file=x",
        "--admission-control-config-file=x",
        "--oidc-issuer-url=x",
        "--token-auth-file=x",
        "--secure-port=x",
        "argument",
    ],
)
def test_a_flag_that_would_change_who_may_do_what_is_refused(flag: str) -> None:
    with pytest.raises(FlagError):
        parse_flags([flag])


def test_the_real_engine_does_not_take_the_drop_in_for_its_executables(
    assets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    assert all(binary.source != "KUBEBUILDER_ASSETS" for binary in find_binaries().values())
    assert os.access(assets / "kube-apiserver", os.X_OK)
