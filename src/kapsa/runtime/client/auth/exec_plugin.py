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


class _Answer(msgspec.Struct, frozen=True):
    kind: str = ""
    api_version: str = msgspec.field(name="apiVersion", default="")
    status: _Status | None = None


class ExecPlugin:
    """Runs the command when a credential is needed, keeps what it gave until it expires.

    However many callers need a credential at once, the command runs once; none of them blocks the event loop,
    and one that gives up waiting does not stop it for the others.
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
        """Where a relative command is looked up: the directory of the kubeconfig."""
        self._cluster = cluster
        """Handed to the command if it asks for it (`provideClusterInfo`)."""
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
            task.exception()  # it was told to everyone who waited; nobody may be left

    async def _run(self) -> Credential:
        answer = self._parse(await self._output())
        now = self._clock.now()
        renew_at = None
        if answer.expires is not None:
            # Renewed a little early, so that no request leaves with a token that expires on the way; but a token
            # that lives for seconds only is used for most of its life.
            renew_at = answer.expires - min(_MARGIN, max(answer.expires - now, timedelta()) / 10)
        credential = Credential(
            headers=(bearer_header(answer.token),) if answer.token else (),
            certificate=answer.certificate.encode() or None,
            key=answer.key.encode() or None,
        )
        self._current = (credential, renew_at)
        return credential

    async def _output(self) -> bytes:
        process = await self._start()
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.timeout(self._timeout):
                output, complaint = await asyncio.gather(_read(process.stdout), _read(process.stderr))
                code = await process.wait()
        except TimeoutError:
            raise CredentialError(
                f"exec plugin {self._config.command!r} gave no credential within {self._timeout:g} s"
            ) from None
        finally:
            await _end(process)
        if code != 0:
            said = complaint.decode("utf-8", "replace").strip()[-_SHOWN_OF_STDERR:]
            raise CredentialError(
                f"exec plugin {self._config.command!r} failed with exit code {code}"
                + (f": {said}" if said else " and said nothing")
            )
        if len(output) > _OUTPUT_LIMIT:
            raise CredentialError(f"exec plugin {self._config.command!r} printed more than 1 MB")
        return output

    async def _start(self) -> asyncio.subprocess.Process:
        command = self._find()
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
                start_new_session=True,  # so that a time-out also ends what the command started
            )
        except OSError as error:
            raise CredentialError(
                f"exec plugin {command!r} can't be started: {error.strerror}{self._hint()}"
            ) from error

    def _find(self) -> str:
        command = self._config.command
        if os.sep in command:
            return command if Path(command).is_absolute() else str(self._directory / command)
        found = shutil.which(command)
        if found is None:
            raise CredentialError(f"exec plugin {command!r} is not installed{self._hint()}")
        return found

    def _hint(self) -> str:
        return f". {self._config.install_hint.strip()}" if self._config.install_hint else ""

    def _info(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": False}
        if self._config.provide_cluster_info and self._cluster is not None:
            spec["cluster"] = self._cluster
        return {"apiVersion": self._config.api_version, "kind": "ExecCredential", "spec": spec}

    def _parse(self, output: bytes) -> _Status:
        where = f"exec plugin {self._config.command!r}"
        try:
            answer = msgspec.json.decode(output, type=_Answer)
        except msgspec.DecodeError as error:
            raise CredentialError(f"{where} did not print an ExecCredential: {error}") from error
        if answer.kind != "ExecCredential" or answer.api_version != self._config.api_version:
            raise CredentialError(
                f"{where} printed a {answer.kind or 'nothing'} of {answer.api_version or 'no version'}, "
                f"asked for was an ExecCredential of {self._config.api_version}"
            )
        status = answer.status
        if status is None or not (status.token or status.certificate):
            raise CredentialError(f"{where} printed an ExecCredential with neither a token nor a certificate")
        if bool(status.certificate) != bool(status.key):
            raise CredentialError(f"{where} printed a certificate without its key, or the reverse")
        return status


async def _read(stream: asyncio.StreamReader) -> bytes:
    """All that is written to it, of which a little more than the limit is kept."""
    content = bytearray()
    while chunk := await stream.read(65536):
        if len(content) <= _OUTPUT_LIMIT:
            content += chunk
    return bytes(content)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Make sure that nothing of the command is left, whatever happened."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            await process.communicate()
