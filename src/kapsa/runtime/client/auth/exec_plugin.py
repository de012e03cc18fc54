"""Credentials from a command: client-go's exec plugins, `client.authentication.k8s.io` v1 and v1beta1."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from kapsa.runtime.client.auth.credentials import Credential, bearer_header
from kapsa.runtime.clock import Clock
from kapsa.runtime.errors import CredentialError

__all__ = ["ExecConfig", "ExecPlugin"]

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_OUTPUT_LIMIT = 1024 * 1024
_SHOWN_OF_STDERR = 500
_MARGIN = timedelta(seconds=10)


class ExecVariable(msgspec.Struct, frozen=True):
    """An environment variable for the command."""

    name: str
    value: str = ""


class ExecConfig(msgspec.Struct, frozen=True):
    """The `exec` section of a user in a kubeconfig."""

    command: str
    api_version: str = msgspec.field(name="apiVersion", default="")
    args: tuple[str, ...] | None = None
    env: tuple[ExecVariable, ...] | None = None
    install_hint: str = msgspec.field(name="installHint", default="")
    provide_cluster_info: bool = msgspec.field(name="provideClusterInfo", default=False)
    interactive_mode: str = msgspec.field(name="interactiveMode", default="")


class _Status(msgspec.Struct, frozen=True):
    token: str = ""
    certificate: str = msgspec.field(name="clientCertificateData", default="")
    key: str = msgspec.field(name="clientKeyData", default="")
    expires: datetime | None = msgspec.field(name="expirationTimestamp", default=None)


class _ExecCredential(msgspec.Struct, frozen=True):
    kind: str = ""
    api_version: str = msgspec.field(name="apiVersion", default="")
    status: _Status | None = None


class ExecPlugin:
    """A provider that runs a command to get a credential, and keeps the credential until it expires.

    The command runs once for all callers that wait at the same time. It never blocks the event loop, and a
    caller that is cancelled does not stop it for the others.
    """

    def __init__(
        self,
        config: ExecConfig,
        *,
        directory: Path,
        cluster: Mapping[str, Any] | None = None,
        clock: Clock,
        timeout: float = 60.0,
    ) -> None:
        self._config = config
        self._directory = directory
        """The directory of the kubeconfig, which a relative path of the command starts at."""
        self._cluster = cluster
        """The cluster as the command gets it, with `provideClusterInfo`."""
        self._clock = clock
        self._timeout = timeout
        self._current: tuple[Credential, datetime | None] | None = None
        self._running: asyncio.Task[Credential] | None = None

    async def current(self) -> Credential:
        if self._current is not None:
            credential, renew_at = self._current
            if renew_at is None or self._clock.now() < renew_at:
                return credential
        return await self._renew()

    async def rejected(self, used: Credential) -> bool:
        if self._current is not None and self._current[0] is used:
            self._current = None
        return True

    async def _renew(self) -> Credential:
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name=f"exec plugin {self._config.command}")
            self._running.add_done_callback(self._finished)
        return await asyncio.shield(self._running)

    def _finished(self, task: "asyncio.Task[Credential]") -> None:
        self._running = None
        if not task.cancelled():
            task.exception()  # marks it as retrieved: all callers that waited may have been cancelled

    async def _run(self) -> Credential:
        printed = self._parse(await self._output())
        now = self._clock.now()
        renew_at = None
        if printed.expires is not None:
            # Renewed a little early, so that the token does not expire while a request is on its way. A token
            # that is valid for only seconds is still used for most of that time.
            renew_at = printed.expires - min(_MARGIN, max(printed.expires - now, timedelta()) / 10)
        credential = Credential(
            headers=(bearer_header(printed.token),) if printed.token else (),
            certificate=printed.certificate.encode() or None,
            key=printed.key.encode() or None,
        )
        self._current = (credential, renew_at)
        return credential

    async def _output(self) -> bytes:
        process = await self._start()
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.timeout(self._timeout):
                output, errors = await asyncio.gather(_read(process.stdout), _read(process.stderr))
                code = await process.wait()
        except TimeoutError:
            raise CredentialError(
                f"exec plugin {self._config.command!r} did not return a credential within {self._timeout:g} s"
            ) from None
        finally:
            await _end(process)
        if code != 0:
            message = errors.decode("utf-8", "replace").strip()[-_SHOWN_OF_STDERR:]
            raise CredentialError(
                f"exec plugin {self._config.command!r} failed with exit code {code}"
                + (f": {message}" if message else " and printed nothing to stderr")
            )
        if len(output) > _OUTPUT_LIMIT:
            raise CredentialError(f"exec plugin {self._config.command!r} printed more than 1 MB")
        return output

    async def _start(self) -> asyncio.subprocess.Process:
        command = self._executable()
        environment = {**os.environ, **{variable.name: variable.value for variable in self._config.env or ()}}
        environment["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(self._info()).decode()
        try:
            return await asyncio.create_subprocess_exec(
                command,
                *(self._config.args or ()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
                start_new_session=True,  # so that a timeout also ends the processes that the command started
            )
        except OSError as error:
            raise CredentialError(
                f"cannot start exec plugin {command!r}: {error.strerror}{self._hint()}"
            ) from error

    def _executable(self) -> str:
        command = self._config.command
        if os.sep in command:
            return command if Path(command).is_absolute() else str(self._directory / command)
        path = shutil.which(command)
        if path is None:
            raise CredentialError(f"exec plugin {command!r} is not installed{self._hint()}")
        return path

    def _hint(self) -> str:
        return f". {self._config.install_hint.strip()}" if self._config.install_hint else ""

    def _info(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": False}
        if self._config.provide_cluster_info and self._cluster is not None:
            spec["cluster"] = self._cluster
        return {"apiVersion": self._config.api_version, "kind": "ExecCredential", "spec": spec}

    def _parse(self, output: bytes) -> _Status:
        plugin = f"exec plugin {self._config.command!r}"
        try:
            credential = msgspec.json.decode(output, type=_ExecCredential)
        except msgspec.DecodeError as error:
            raise CredentialError(f"{plugin} did not print an ExecCredential: {error}") from error
        if credential.kind != "ExecCredential" or credential.api_version != self._config.api_version:
            raise CredentialError(
                f"{plugin} printed kind {credential.kind!r} of apiVersion {credential.api_version!r}; "
                f"expected ExecCredential of {self._config.api_version}"
            )
        status = credential.status
        if status is None or not (status.token or status.certificate):
            raise CredentialError(
                f"{plugin} printed an ExecCredential without a token and without a certificate"
            )
        if bool(status.certificate) != bool(status.key):
            raise CredentialError(
                f"{plugin} printed a certificate without its key, or a key without its certificate"
            )
        return status


async def _read(stream: asyncio.StreamReader) -> bytes:
    """Read to the end, keeping little more than the limit."""
    content = bytearray()
    while chunk := await stream.read(65536):
        if len(content) <= _OUTPUT_LIMIT:
            content += chunk
    return bytes(content)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the command, and everything that it started, if it still runs."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            await process.communicate()
