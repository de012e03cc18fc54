"""The programs of the drop-in for envtest, started with the flags that envtest passes."""

from __future__ import annotations

import contextlib
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


def wait_until_free(port: int) -> None:
    """Wait until a port can be used again."""
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        else:
            return


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

    def flags(self, port: int, etcd: int) -> list[str]:
        return [
            "--allow-privileged=true",
            "--authorization-mode=RBAC",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.directory}",
            f"--client-ca-file={self.directory / 'client-ca.crt'}",
            "--disable-admission-plugins=ServiceAccount",
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            f"--secure-port={port}",
            f"--service-account-issuer=https://127.0.0.1:{port}/",
            "--service-cluster-ip-range=10.0.0.0/24",
        ]


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certificates")


@pytest.fixture
def etcd(start: Start, tmp_path: Path) -> int:
    """The port of an etcd that is ready."""
    port = free_port()
    start("etcd", f"--listen-client-urls=http://127.0.0.1:{port}", f"--data-dir={tmp_path / 'data'}")
    get(port, "/health")
    return port


def read_all(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code of a process that ends, and what it wrote to its standard error."""
    _, written = process.communicate(timeout=20)
    return process.returncode, written


def test_etcd_answers_health_checks_until_it_is_stopped(start: Start, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = start(
        "etcd",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--data-dir={tmp_path / 'data'}",
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
    start: Start, certificates: Certificates, etcd: int
) -> None:
    port = free_port()
    process = start("kube-apiserver", *certificates.flags(port, etcd))
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
    code, written = read_all(process)
    assert code == 0
    assert "kube-apiserver: --allow-privileged has no effect: privileged pods are accepted" in written


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL])
def test_the_objects_outlive_the_api_server_and_its_port_is_free_again(
    start: Start, certificates: Certificates, etcd: int, stop: signal.Signals
) -> None:
    port, admin = free_port(), certificates.context("admin", "system:masters")
    first = start("kube-apiserver", *certificates.flags(port, etcd))
    before = json.loads(get(port, "/api/v1/namespaces/default", admin)[1])
    first.send_signal(stop)
    read_all(first)
    if stop == signal.SIGKILL:
        wait_until_free(port)
    start("kube-apiserver", *certificates.flags(port, etcd))
    after = json.loads(get(port, "/api/v1/namespaces/default", admin)[1])
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


def test_an_etcd_has_one_api_server_at_a_time(start: Start, certificates: Certificates, etcd: int) -> None:
    port = free_port()
    first = start("kube-apiserver", *certificates.flags(port, etcd))
    get(port, "/healthz", certificates.context())
    assert read_all(start("kube-apiserver", *certificates.flags(free_port(), etcd))) == (
        1,
        "kube-apiserver: another kube-apiserver uses this etcd; the drop-in serves one at a time\n",
    )
    assert get(port, "/healthz", certificates.context()) == (200, b"ok")
    assert first.poll() is None


def test_the_api_server_ends_with_its_etcd(start: Start, certificates: Certificates, tmp_path: Path) -> None:
    etcd, port = free_port(), free_port()
    holder = start("etcd", f"--listen-client-urls=http://127.0.0.1:{etcd}", f"--data-dir={tmp_path / 'data'}")
    get(etcd, "/health")
    process = start("kube-apiserver", *certificates.flags(port, etcd))
    get(port, "/healthz", certificates.context())
    holder.kill()
    assert read_all(process)[0] == 1


def test_the_api_server_needs_the_etcd_of_the_drop_in(start: Start, certificates: Certificates) -> None:
    nobody = free_port()
    code, written = read_all(start("kube-apiserver", *certificates.flags(free_port(), nobody)))
    assert code == 1
    assert written == (
        "kube-apiserver: --etcd-servers must name the etcd of kapsa's drop-in for envtest; "
        f"there is none at http://127.0.0.1:{nobody}: Connection refused\n"
    )


def test_a_data_directory_has_one_etcd_at_a_time(start: Start, etcd: int, tmp_path: Path) -> None:
    flags = [f"--listen-client-urls=http://127.0.0.1:{free_port()}", f"--data-dir={tmp_path / 'data'}"]
    assert read_all(start("etcd", *flags)) == (
        1,
        f"etcd: --data-dir {tmp_path / 'data'} is in use by another etcd; stop it, or choose another directory\n",
    )
    assert get(etcd, "/health")[0] == 200


def test_the_engine_of_an_etcd_that_was_killed_does_not_keep_its_data_directory(
    start: Start, tmp_path: Path
) -> None:
    for _ in range(2):
        port = free_port()
        process = start(
            "etcd", f"--listen-client-urls=http://127.0.0.1:{port}", f"--data-dir={tmp_path / 'data'}"
        )
        assert get(port, "/health")[0] == 200
        process.kill()
        process.wait(timeout=10)


def test_only_this_user_can_connect_to_the_engine(etcd: int, tmp_path: Path) -> None:
    directory = get(etcd, "/kapsa/engine")[1].decode()
    assert directory == str(tmp_path / "data")
    assert (Path(directory) / "engine.sock").stat().st_mode & 0o777 == 0o600


def test_a_stranger_at_the_engines_socket_does_not_disturb_it(
    start: Start, certificates: Certificates, etcd: int, tmp_path: Path
) -> None:
    for message in (b"", b"\0\0\0\x08argument", b"\xff\xff\xff\xff", b"x"):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(tmp_path / "data" / "engine.sock"))
            stranger.sendall(message)
            stranger.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
    port = free_port()
    start("kube-apiserver", *certificates.flags(port, etcd))
    assert get(port, "/healthz", certificates.context()) == (200, b"ok")


def test_a_busy_port_and_a_missing_certificate_are_one_line_each(
    start: Start, certificates: Certificates, etcd: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for name, arguments in (
            ("kube-apiserver", certificates.flags(port, etcd)),
            ("etcd", [f"--listen-client-urls=http://127.0.0.1:{port}"]),
        ):
            assert read_all(start(name, *arguments)) == (
                1,
                f"{name}: cannot listen on 127.0.0.1:{port}: Address already in use\n",
            )
    (certificates.directory / "apiserver.crt").unlink()
    code, written = read_all(start("kube-apiserver", *certificates.flags(free_port(), etcd)))
    assert code == 1
    assert written.startswith(f"kube-apiserver: {certificates.directory / 'apiserver.crt'} does not exist; ")


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
